/* The few NVML functions that the sensor calls, for two boards and one MIG instance on the second.
   FAKE_NVML_FAIL names one function that answers "not supported". */
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9 };

typedef struct { unsigned index; const char *uuid, *name; int mig; } device;
static device devices[] = {
    {0, "GPU-aaaa", "Fake A", 0}, {1, "GPU-bbbb", "Fake B", 0}, {0, "MIG-cccc", "Fake B MIG 1g", 1}};

static int fails(const char *function) {
    const char *named = getenv("FAKE_NVML_FAIL");
    return named && !strcmp(named, function);
}
#define SUPPORTED if (fails(__func__)) return NOT_SUPPORTED
#define BOARD_ONLY if (d->mig) return NOT_SUPPORTED

int nvmlInitWithFlags(unsigned flags) { (void)flags; return fails("init") ? DRIVER_NOT_LOADED : OK; }
int nvmlDeviceGetCount_v2(unsigned *count) { SUPPORTED; *count = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **d) {
    SUPPORTED; if (index > 1) return INVALID_ARGUMENT; *d = &devices[index]; return OK; }
int nvmlDeviceGetHandleByUUID(const char *uuid, device **d) {
    for (int i = 0; i < 3; i++) if (!strcmp(uuid, devices[i].uuid)) { *d = &devices[i]; return OK; }
    return NOT_FOUND; }
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device *d, device **board) {
    if (!d->mig) return INVALID_ARGUMENT; *board = &devices[1]; return OK; }
int nvmlDeviceGetIndex(device *d, unsigned *index) { SUPPORTED; *index = d->index; return OK; }
int nvmlDeviceGetUUID(device *d, char *uuid, unsigned size) { SUPPORTED; strncpy(uuid, d->uuid, size); return OK; }
int nvmlDeviceGetName(device *d, char *name, unsigned size) { SUPPORTED; strncpy(name, d->name, size); return OK; }
int nvmlDeviceGetMemoryInfo(device *d, unsigned long long memory[3]) {
    SUPPORTED; memory[0] = d->mig ? 10 : 80; memory[2] = d->mig ? 1 : 8 + d->index;
    memory[1] = memory[0] - memory[2]; return OK; }
int nvmlDeviceGetUtilizationRates(device *d, unsigned rates[2]) {
    SUPPORTED; BOARD_ONLY; rates[0] = 90 + d->index; rates[1] = 50; return OK; }
int nvmlDeviceGetTemperature(device *d, int sensor, unsigned *value) {
    SUPPORTED; BOARD_ONLY; if (sensor != 0) return INVALID_ARGUMENT; *value = 60 + d->index; return OK; }
int nvmlDeviceGetPowerUsage(device *d, unsigned *value) { SUPPORTED; BOARD_ONLY; *value = 300500; return OK; }
int nvmlDeviceGetEnforcedPowerLimit(device *d, unsigned *value) { SUPPORTED; BOARD_ONLY; *value = 700000; return OK; }
int nvmlDeviceGetClockInfo(device *d, int kind, unsigned *value) {
    SUPPORTED; BOARD_ONLY; if (kind != 1) return INVALID_ARGUMENT; *value = 1980; return OK; }
