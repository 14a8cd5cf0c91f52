/* Raw system calls, as a hostile kernel makes them: OpenCL on a CPU is native code. */

long call(long number, const long *a) {
    long answer;
    __asm__ volatile("mov %5, %%r10\n\tmov %6, %%r8\n\tmov %7, %%r9\n\tsyscall"
                     : "=a"(answer)
                     : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5])
                     : "rcx", "r8", "r9", "r10", "r11", "memory");
    return answer;
}

/* One attack: calls of eight words each (number, how to read the arguments, six arguments), until one fails. */
long steps(global const long *words, global uchar *data) {
    long answer = 0;
    for (int step = 0; step < STEPS && words[step * 8] >= 0; ++step) {
        global const long *word = words + step * 8;
        long a[6];
        for (int i = 0; i < 6; ++i) {
            long kind = (word[1] >> (2 * i)) & 3;
            a[i] = kind == IN_DATA ? (long)(data + word[2 + i]) : kind == LAST_ANSWER ? answer : word[2 + i];
        }
        answer = call(word[0], a);
        if (answer < 0) {
            return answer;
        }
    }
    return answer;
}

kernel void attack(global const long *words, global const int *where, global uchar *data, global long *answers, int count) {
    for (int i = 0; i < count; ++i) {
        global const long *own = words + i * STEPS * 8;
        if (where[i] == HERE) {
            answers[i] = steps(own, data);
            continue;
        }
        long none[6] = {0, 0, 0, 0, 0, 0};
        long child = call(SYS_FORK, none);
        if (where[i] == LEFT_BEHIND) {
            while (child == 0) {
                call(SYS_PAUSE, none);
            }
            answers[i] = child < 0 ? child : 0;
            continue;
        }
        if (child == 0) {
            long code[6] = {0, 0, 0, 0, 0, 0};
            long answer = steps(own, data);
            code[0] = answer < 0 ? -answer : 0;
            call(SYS_EXIT_GROUP, code);
        }
        int status = -1;
        long wait[6] = {child, (long)&status, 0, 0, 0, 0};
        answers[i] = child < 0 ? child : call(SYS_WAIT4, wait) < 0 ? -1 : status;
    }
}
