/*
 * Tells which libnccl.so.2 it finds, as programs do that have none of their own: Towline's, another or none. Of Towline's it calls
 * ncclGetVersion, and names each argument that is no function of it.
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **names)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    if (library == NULL) {
        puts("none");
        return 0;
    }
    int (*get_version)(int *) = (int (*)(int *))dlsym(library, "ncclGetVersion");
    if (dlsym(library, "towline_library") == NULL || get_version == NULL) {
        puts("another");
        return 0;
    }
    int version = 0;
    puts("Towline's");
    printf("version %d\n", get_version(&version) == 0 ? version : 0);
    for (int i = 1; i < count; i++)
        if (dlsym(library, names[i]) == NULL)
            printf("no %s\n", names[i]);
    return 0;
}
