// A plugin of the emulator qemu-user (plugin interface 1) that counts how often each instruction of a
// program runs. The interface's few declarations are written out, so that no header is needed.
//
// In the directory that the argument dir= names, the plugin looks for two files and removes them when
// it has done what they ask for: "mark" (count from here on) and "dump" (write the counts so far into
// "counts", a line for each instruction: its address in hexadecimal, how often it ran).
//
// Each thread has counters of its own. The counts are those of the threads that ran the most
// instructions: the loops that serve clients. The argument loops= says how many there are. The speed
// of the disk decides what other threads do.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
extern size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
extern uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
extern void qemu_plugin_register_vcpu_tb_trans_cb(
    plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
extern void qemu_plugin_register_vcpu_tb_exec_cb(
    struct qemu_plugin_tb *, void (*)(unsigned, void *), int, void *);

EXPORT int qemu_plugin_version = 1;

// The threads that are told apart. The server has fewer.
#define THREADS 32

// A block of instructions that run one after the other.
struct block {
    uint64_t runs[THREADS];
    uint64_t runs_at_mark[THREADS];
    struct block *next;
    size_t length;
    uint64_t addresses[];
};

static struct block *blocks;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t loops = 1;
static char mark[512], dump[512], counts[512], counts_tmp[512];

static void ran(unsigned thread, void *block) {
    ((struct block *)block)->runs[thread < THREADS ? thread : THREADS - 1]++;
}

static void translated(plugin_id id, struct qemu_plugin_tb *tb) {
    size_t length = qemu_plugin_tb_n_insns(tb);
    struct block *block = calloc(1, sizeof *block + length * sizeof(uint64_t));
    if (!block)
        abort();
    block->length = length;
    for (size_t i = 0; i < length; i++)
        block->addresses[i] = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, i));
    pthread_mutex_lock(&lock);
    block->next = blocks;
    blocks = block;
    pthread_mutex_unlock(&lock);
    // With flag 0 the callback sees no registers.
    qemu_plugin_register_vcpu_tb_exec_cb(tb, ran, 0, block);
    (void)id;
}

static uint64_t runs_since_mark(const struct block *block, size_t thread) {
    return block->runs[thread] - block->runs_at_mark[thread];
}

static void find_loops(int is_loop[THREADS]) {
    uint64_t counted[THREADS] = {0};
    for (size_t thread = 0; thread < THREADS; thread++)
        for (struct block *block = blocks; block; block = block->next)
            counted[thread] += block->length * runs_since_mark(block, thread);
    for (size_t found = 0; found < loops && found < THREADS; found++) {
        size_t busiest = 0;
        for (size_t thread = 0; thread < THREADS; thread++)
            if (counted[thread] > counted[busiest])
                busiest = thread;
        is_loop[busiest] = 1;
        counted[busiest] = 0;
    }
}

static void write_counts(void) {
    int is_loop[THREADS] = {0};
    find_loops(is_loop);
    FILE *out = fopen(counts_tmp, "w");
    if (!out)
        abort();
    for (struct block *block = blocks; block; block = block->next) {
        uint64_t runs = 0;
        for (size_t thread = 0; thread < THREADS; thread++)
            runs += is_loop[thread] ? runs_since_mark(block, thread) : 0;
        for (size_t i = 0; i < block->length && runs; i++)
            fprintf(out, "%lx %lu\n", (unsigned long)block->addresses[i], (unsigned long)runs);
    }
    if (fclose(out) || rename(counts_tmp, counts))
        abort();
}

static void *watch(void *unused) {
    for (;; usleep(20000)) {
        pthread_mutex_lock(&lock);
        if (!access(mark, F_OK)) {
            for (struct block *block = blocks; block; block = block->next)
                memcpy(block->runs_at_mark, block->runs, sizeof block->runs);
            unlink(mark);
        }
        if (!access(dump, F_OK)) {
            write_counts();
            unlink(dump);
        }
        pthread_mutex_unlock(&lock);
    }
    return unused;
}

EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
    const char *dir = ".";
    for (int i = 0; i < argc; i++) {
        if (!strncmp(argv[i], "dir=", 4))
            dir = argv[i] + 4;
        if (!strncmp(argv[i], "loops=", 6))
            loops = strtoul(argv[i] + 6, NULL, 10);
    }
    snprintf(mark, sizeof mark, "%s/mark", dir);
    snprintf(dump, sizeof dump, "%s/dump", dir);
    snprintf(counts, sizeof counts, "%s/counts", dir);
    snprintf(counts_tmp, sizeof counts_tmp, "%s/counts.tmp", dir);
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    pthread_t thread;
    (void)info;
    return pthread_create(&thread, NULL, watch, NULL);
}
