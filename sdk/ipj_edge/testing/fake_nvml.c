/* A stand-in for NVIDIA's libnvidia-ml.so.1, for tests without a GPU.
 *
 * It answers from the text file named by IPJ_FAKE_NVML, which is read again at every call, so that a test changes what
 * the driver says by rewriting it. One "key value" a line; keys of a GPU start with its index:
 *
 *   init 0                 return code of nvmlInit
 *   count 2
 *   0.uuid GPU-...         0.name NVIDIA A100        0.bus 00000000:01:00.0
 *   0.arch 7               0.mig 1                   0.slices MIG-a,MIG-b
 *   0.energy_mj 1000       0.energy_return 0         0.power_mw 50000      0.power_return 0
 *   0.since_s 12.5         with it, energy grows by power_mw from that moment of CLOCK_MONOTONIC, every 100 ms
 *
 * Compiled with -DBARE it has the ten functions that nvidia-ml-py cannot do without.
 * Names, types and codes: NVIDIA's public nvml.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define OK 0
#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NOT_FOUND 6
#define SLICES 100

typedef void *device_t;

static int look_up(const char *key, char *value, size_t size) {
    const char *path = getenv("IPJ_FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    size_t length = strlen(key);
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) == 0 && line[length] == ' ') {
            line[strcspn(line, "\n")] = 0;
            snprintf(value, size, "%s", line + length + 1);
            found = 1;
        }
    }
    if (file) fclose(file);
    return found;
}

static int text_of(device_t device, const char *name, char *value, size_t size) {
    char key[64];
    snprintf(key, sizeof key, "%ld.%s", (long)device - 1, name);
    return look_up(key, value, size);
}

static double number_of(device_t device, const char *name, double missing) {
    char value[256];
    return text_of(device, name, value, sizeof value) ? atof(value) : missing;
}

static int code(const char *key) {
    char value[64];
    return look_up(key, value, sizeof value) ? atoi(value) : OK;
}

int nvmlInitWithFlags(unsigned int flags) { (void)flags; return code("init"); }
int nvmlInit_v2(void) { return code("init"); }
int nvmlShutdown(void) { return OK; }

const char *nvmlErrorString(int result) {
    switch (result) {
        case OK: return "Success";
        case NOT_SUPPORTED: return "Not Supported";
        case 4: return "Insufficient Permissions";
        case 9: return "Driver Not Loaded";
        case 15: return "GPU is lost";
        case 18: return "Driver/library version mismatch";
        default: return "Unknown Error";
    }
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    char value[64];
    *count = look_up("count", value, sizeof value) ? (unsigned int)atoi(value) : 0;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, device_t *device) {
    unsigned int count;
    nvmlDeviceGetCount_v2(&count);
    if (index >= count) return INVALID_ARGUMENT;
    *device = (device_t)(long)(index + 1);
    return OK;
}

static int slice_of(long parent, unsigned int index, char *uuid, size_t size) {
    char all[400], *rest = all, *part = NULL;
    if (!text_of((device_t)parent, "slices", all, sizeof all)) return NOT_FOUND;
    for (unsigned int i = 0; i <= index; i++)
        if (!(part = strsep(&rest, ","))) return NOT_FOUND;
    snprintf(uuid, size, "%s", part);
    return OK;
}

int nvmlDeviceGetUUID(device_t device, char *uuid, unsigned int size) {
    long handle = (long)device;
    if (handle >= SLICES) return slice_of(handle / SLICES, (unsigned int)(handle % SLICES), uuid, size);
    return text_of(device, "uuid", uuid, size) ? OK : NOT_FOUND;
}

int nvmlDeviceGetPowerUsage(device_t device, unsigned int *milliwatts) {
    int failure = (int)number_of(device, "power_return", OK);
    *milliwatts = (unsigned int)number_of(device, "power_mw", 0);
    return failure;
}

int nvmlDeviceGetTotalEnergyConsumption(device_t device, unsigned long long *millijoules) {
    int failure = (int)number_of(device, "energy_return", OK);
    double since_s = number_of(device, "since_s", -1), grown = 0;
    if (since_s >= 0) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        long steps = (long)((now.tv_sec + now.tv_nsec * 1e-9 - since_s) / 0.1);
        grown = (double)steps * 0.1 * number_of(device, "power_mw", 0);
    }
    *millijoules = (unsigned long long)(number_of(device, "energy_mj", 0) + grown);
    return failure;
}

#ifndef BARE

typedef struct {
    char legacy[16];
    unsigned int domain, bus, device, pci_device, pci_subsystem;
    char bus_id[32];
} pci_t;

int nvmlDeviceGetName(device_t device, char *name, unsigned int size) {
    return text_of(device, "name", name, size) ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetPciInfo_v3(device_t device, pci_t *pci) {
    memset(pci, 0, sizeof *pci);
    return text_of(device, "bus", pci->bus_id, sizeof pci->bus_id) ? OK : NOT_SUPPORTED;
}

int nvmlDeviceGetArchitecture(device_t device, unsigned int *architecture) {
    double value = number_of(device, "arch", -1);
    *architecture = (unsigned int)value;
    return value < 0 ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetMigMode(device_t device, unsigned int *current, unsigned int *pending) {
    double value = number_of(device, "mig", -1);
    *current = *pending = value > 0;
    return value < 0 ? NOT_SUPPORTED : OK;
}

int nvmlDeviceGetMaxMigDeviceCount(device_t device, unsigned int *count) {
    *count = number_of(device, "mig", 0) > 0 ? 7 : 0;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device_t device, unsigned int index, device_t *slice) {
    char uuid[128];
    *slice = (device_t)((long)device * SLICES + (long)index);
    return slice_of((long)device, index, uuid, sizeof uuid);
}

#endif
