/* An NVML that has no GPU: it answers from the scenario file named by DDPMON_FAKE_NVML, which is read again whenever it
   changes. One line is one fact, of the host, of a GPU or of a MIG instance of it:

       host gpus 2
       host fail nvmlInitWithFlags 9            this function returns this error
       gpu 0 name simulated GPU
       gpu 0 power_mw 300500
       gpu 0 fail nvmlDeviceGetPowerUsage 3     the same for one GPU
       gpu 0 sleep nvmlDeviceGetName 1000       this function takes so many ms
       gpu 0 process compute 8123 1048576 38    kind, pid, bytes, percent of the SMs; - for what NVML would not give
       gpu 0 xid 79                             an event for whoever has registered before it is written
       gpu 0 lost 1                             it has fallen off the bus
       gpu 1.0 uuid MIG-cccc                    the first MIG instance of GPU 1

   What a line does not give is "not supported". A function is missing when it is compiled under another name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { OK, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NOT_FOUND = 6, INSUFFICIENT_SIZE, TIMEOUT = 10, GPU_IS_LOST = 15 };
enum { GPUS = 64, INSTANCES = 7, SLOTS = GPUS * (INSTANCES + 1) + 1, HOST = SLOTS - 1, FACTS = 8192 };
typedef struct { int slot; } device; /* a slot is a board, one of its instances, or the host */
typedef struct { char key[40], rest[216]; int next; } fact;
typedef unsigned long long u64;

static device devices[SLOTS];
static fact facts[FACTS];
static int first[SLOTS], last[SLOTS], seen_xids[SLOTS], watched[SLOTS], count;
static struct stat read_at;

static void add(int slot, const char *key, const char *rest) {
    if (slot < 0 || slot >= SLOTS || count == FACTS) return;
    fact *f = &facts[count];
    snprintf(f->key, sizeof f->key, "%s", key);
    snprintf(f->rest, sizeof f->rest, "%s", rest);
    f->next = -1;
    if (first[slot] < 0) first[slot] = count; else facts[last[slot]].next = count;
    last[slot] = count++;
}

static void parse(char *line) {
    char key[40], *rest;
    int board, instance, at = 0;
    line[strcspn(line, "\r\n")] = 0;
    if (sscanf(line, "host %39s %n", key, &at) == 1 && at) { add(HOST, key, line + at); return; }
    instance = -1;
    if (sscanf(line, "gpu %d.%d %n", &board, &instance, &at) != 2 || !at)
        if (sscanf(line, "gpu %d %n", &board, &at) != 1 || !at) return;
    if (sscanf(rest = line + at, "%39s %n", key, &at) != 1) return;
    if (board >= 0 && board < GPUS && instance < INSTANCES)
        add(board * (INSTANCES + 1) + instance + 1, key, rest + at);
}

static void refresh(void) {
    struct stat now;
    char line[512];
    const char *path = getenv("DDPMON_FAKE_NVML");
    FILE *file;
    if (!path || stat(path, &now)) return;
    if (now.st_ino == read_at.st_ino && now.st_size == read_at.st_size && now.st_mtim.tv_sec == read_at.st_mtim.tv_sec
        && now.st_mtim.tv_nsec == read_at.st_mtim.tv_nsec) return;
    if (!(file = fopen(path, "r"))) return;
    read_at = now;
    count = 0;
    for (int slot = 0; slot < SLOTS; slot++) { first[slot] = -1; devices[slot].slot = slot; }
    while (fgets(line, sizeof line, file)) parse(line);
    fclose(file);
}

static const fact *find(int slot, const char *key, const fact *after) {
    for (int i = after ? after->next : count ? first[slot] : -1; i >= 0; i = facts[i].next)
        if (!strcmp(facts[i].key, key)) return &facts[i];
    return NULL;
}

static int number(int slot, const char *key, long long missing) {
    const fact *f = find(slot, key, NULL);
    return (int)(f ? atoll(f->rest) : missing);
}

static int told(int slot, const char *key, const char *function) { /* of "fail" and "sleep": the number, 0 without */
    char name[96];
    int value;
    for (const fact *f = NULL; (f = find(slot, key, f));)
        if (sscanf(f->rest, "%95s %d", name, &value) == 2 && !strcmp(name, function)) return value;
    return 0;
}

static int check(int slot, const char *function) {
    int ms;
    refresh();
    if ((ms = told(slot, "sleep", function))) nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
    if (slot != HOST && number(slot - slot % (INSTANCES + 1), "lost", 0)) return GPU_IS_LOST;
    return told(slot, "fail", function);
}

#define CHECK(slot) do { int error = check(slot, __func__); if (error) return error; } while (0)

static int give(int slot, const char *function, const char *key, unsigned *value) {
    int error = check(slot, function);
    const fact *f = find(slot, key, NULL);
    if (error || !f) return error ? error : NOT_SUPPORTED;
    *value = (unsigned)strtoul(f->rest, NULL, 10);
    return OK;
}
#define GIVE(function, key) int function(device *d, unsigned *value) { return give(d->slot, #function, key, value); }

static int give_text(int slot, const char *function, const char *key, char *text, unsigned size) {
    int error = check(slot, function);
    const fact *f = find(slot, key, NULL);
    if (error || !f) return error ? error : NOT_SUPPORTED;
    strncpy(text, f->rest, size - 1);
    text[size - 1] = 0;
    return OK;
}

/* The library itself. */
int nvmlInitWithFlags(unsigned flags) { (void)flags; CHECK(HOST); return OK; }
int nvmlShutdown(void) { return OK; }
const char *nvmlErrorString(int error) { (void)error; return "simulated error"; }

/* Devices. */
int nvmlDeviceGetCount_v2(unsigned *boards) { return give(HOST, __func__, "gpus", boards); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **d) {
    CHECK(HOST);
    if (index >= (unsigned)number(HOST, "gpus", 0)) return INVALID_ARGUMENT;
    *d = &devices[index * (INSTANCES + 1)];
    return check((*d)->slot, __func__);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, device **d) {
    CHECK(HOST);
    for (int slot = 0; slot < HOST; slot++) {
        const fact *f = find(slot, "uuid", NULL);
        if (f && !strcmp(f->rest, uuid)) { *d = &devices[slot]; return check(slot, __func__); }
    }
    return NOT_FOUND;
}
int nvmlDeviceGetUUID(device *d, char *uuid, unsigned size) { return give_text(d->slot, __func__, "uuid", uuid, size); }
int nvmlDeviceGetName(device *d, char *name, unsigned size) { return give_text(d->slot, __func__, "name", name, size); }
int nvmlDeviceGetPciInfo_v3(device *d, char *info) { /* 16 bytes of old bus id, 5 numbers, 32 bytes of bus id */
    memset(info, 0, 68);
    return give_text(d->slot, __func__, "bus_id", info + 36, 32);
}

/* Figures that are one number. */
GIVE(nvmlDeviceGetPowerUsage, "power_mw")
GIVE(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
GIVE(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
GIVE(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
GIVE(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
GIVE(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max")

static int give_of_kind(device *d, const char *function, int kind, int wanted, const char *key, unsigned *value) {
    return kind == wanted ? give(d->slot, function, key, value) : INVALID_ARGUMENT;
}
int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *value) {
    return give_of_kind(d, __func__, sensor, 0, "temperature", value);
}
int nvmlDeviceGetTemperatureV(device *d, unsigned *v) { /* version, sensor, temperature */
    return give_of_kind(d, __func__, (int)v[1], 0, "temperature", &v[2]);
}
int nvmlDeviceGetClockInfo(device *d, int kind, unsigned *value) {
    return give_of_kind(d, __func__, kind, 1, "sm_clock", value);
}
int nvmlDeviceGetMaxClockInfo(device *d, int kind, unsigned *value) {
    return give_of_kind(d, __func__, kind, 1, "sm_clock_max", value);
}

/* Figures that are several, or wide. */
static int give_wide(int slot, const char *function, const char *key, u64 *value) {
    int error = check(slot, function);
    const fact *f = find(slot, key, NULL);
    if (error || !f) return error ? error : NOT_SUPPORTED;
    *value = strtoull(f->rest, NULL, 0);
    return OK;
}
int nvmlDeviceGetMemoryInfo(device *d, u64 memory[3]) { /* total, free, used */
    int error = give_wide(d->slot, __func__, "memory_total", &memory[0]);
    if (!error) error = give_wide(d->slot, __func__, "memory_used", &memory[2]);
    memory[1] = memory[0] - memory[2];
    return error;
}
int nvmlDeviceGetUtilizationRates(device *d, unsigned rates[2]) {
    rates[1] = 0;
    return give(d->slot, __func__, "utilization", &rates[0]);
}
int nvmlDeviceGetCurrentClocksEventReasons(device *d, u64 *reasons) {
    return give_wide(d->slot, __func__, "clock_reasons", reasons);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, u64 *reasons) {
    return give_wide(d->slot, __func__, "clock_reasons", reasons);
}
int nvmlDeviceGetTotalEccErrors(device *d, int kind, int counter, u64 *errors) {
    if (kind != 1 || counter != 0) return INVALID_ARGUMENT; /* uncorrected, volatile */
    return give_wide(d->slot, __func__, "ecc_uncorrected", errors);
}
int nvmlDeviceGetRemappedRows(device *d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    *corrected = *failed = 0;
    *pending = (unsigned)number(d->slot, "remap_pending", 0);
    return give(d->slot, __func__, "remapped_rows", uncorrected);
}
int nvmlDeviceGetRetiredPages(device *d, int cause, unsigned *pages, u64 *addresses) {
    unsigned retired, room = *pages;
    int error = give(d->slot, __func__, cause ? "retired_double" : "retired_single", &retired);
    if (error) return error;
    *pages = retired;
    if (room < retired) return INSUFFICIENT_SIZE;
    if (addresses) memset(addresses, 0, retired * sizeof *addresses);
    return OK;
}
int nvmlDeviceGetNvLinkState(device *d, unsigned link, unsigned *active) { /* nvlinks 1 1 0: three, the last is down */
    int up, at = 0;
    CHECK(d->slot);
    const fact *f = find(d->slot, "nvlinks", NULL);
    if (!f) return NOT_SUPPORTED;
    for (const char *rest = f->rest; sscanf(rest, "%d %n", &up, &at) == 1; rest += at)
        if (!link--) { *active = (unsigned)up; return OK; }
    return INVALID_ARGUMENT;
}

/* MIG. */
int nvmlDeviceGetMigMode(device *d, unsigned *current, unsigned *pending) {
    *pending = 0;
    return give(d->slot, __func__, "mig", current);
}
int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *instances) { CHECK(d->slot); *instances = INSTANCES; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned index, device **instance) {
    CHECK(d->slot);
    if (index >= INSTANCES) return INVALID_ARGUMENT;
    *instance = &devices[d->slot + (int)index + 1];
    return find((*instance)->slot, "uuid", NULL) ? OK : NOT_FOUND;
}

/* Processes. */
typedef struct { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; } process_info;
typedef struct { unsigned pid; u64 time; unsigned sm, memory, encoder, decoder; } process_sample;

static int give_processes(int slot, const char *function, const char *kind, unsigned *room, process_info *into) {
    char what[16], memory[24];
    unsigned pid, found = 0;
    int error = check(slot, function);
    if (error) return error;
    for (const fact *f = NULL; (f = find(slot, "process", f));) {
        if (sscanf(f->rest, "%15s %u %23s", what, &pid, memory) != 3 || strcmp(what, kind)) continue;
        if (into && found < *room)
            into[found] = (process_info){pid, *memory == '-' ? ~0ULL : strtoull(memory, NULL, 10), ~0u, ~0u};
        found++;
    }
    error = found > *room ? INSUFFICIENT_SIZE : OK;
    *room = found;
    return error;
}
#define PROCESSES(function, kind) int function(device *d, unsigned *room, process_info *into) { \
    return give_processes(d->slot, #function, kind, room, into); }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, "compute")
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, "compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps")

int nvmlDeviceGetProcessUtilization(device *d, process_sample *into, unsigned *room, u64 since) {
    struct timespec clock;
    unsigned pid, sm, found = 0;
    int error = check(d->slot, __func__);
    if (error) return error;
    clock_gettime(CLOCK_REALTIME, &clock);
    u64 now = (u64)clock.tv_sec * 1000000 + (u64)clock.tv_nsec / 1000;
    for (const fact *f = NULL; now > since && (f = find(d->slot, "process", f));) {
        if (sscanf(f->rest, "%*s %u %*s %u", &pid, &sm) != 2) continue; /* - for sm: an idle one has no sample */
        if (into && found < *room) into[found] = (process_sample){pid, now, sm, 0, 0, 0};
        found++;
    }
    if (!found) return NOT_FOUND;
    error = found > *room ? INSUFFICIENT_SIZE : OK;
    *room = found;
    return error;
}

/* Events: one set for everybody. */
typedef struct { device *d; u64 kind, data; unsigned gpu_instance, compute_instance; } event;

static int xids(int slot) {
    int found = 0;
    for (const fact *f = NULL; (f = find(slot, "xid", f));) found++;
    return found;
}
int nvmlEventSetCreate(void **set) { CHECK(HOST); memset(watched, 0, sizeof watched); *set = devices; return OK; }
int nvmlEventSetFree(void *set) { (void)set; return OK; }
int nvmlDeviceRegisterEvents(device *d, u64 kinds, void *set) {
    (void)set;
    CHECK(d->slot);
    watched[d->slot] = (kinds & 8) != 0; /* critical Xids */
    seen_xids[d->slot] = xids(d->slot);
    return OK;
}
int nvmlEventSetWait_v2(void *set, event *into, unsigned timeout_ms) {
    (void)set, (void)timeout_ms; /* nobody waits */
    CHECK(HOST);
    for (int slot = 0; slot < HOST; slot++) {
        const fact *f = NULL;
        if (xids(slot) <= seen_xids[slot]) watched[slot] &= !number(slot, "lost", 0); /* its last words are still heard */
        if (!watched[slot] || xids(slot) <= seen_xids[slot]) continue;
        for (int i = 0; i <= seen_xids[slot]; i++) f = find(slot, "xid", f);
        seen_xids[slot]++;
        *into = (event){&devices[slot], 8, strtoull(f->rest, NULL, 10), ~0u, ~0u};
        return OK;
    }
    return TIMEOUT;
}
