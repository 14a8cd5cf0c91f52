/* Loads the library that its first argument names; its others are for the library's constructor. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (library == NULL) {
        fprintf(stderr, "not loaded: %s\n", dlerror());
        return 3;
    }
    puts("loaded");
    return 0;
}
