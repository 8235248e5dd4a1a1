/* A driver library for tests of the session: two GPUs, and one fault by -DFAULT_... */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef int rc;
typedef struct gpu { unsigned index; } *device;
static struct gpu gpus[2] = {{0}, {1}};

#ifndef NOT_SIMULATED
int nodegate_simulated_driver = 1;
#endif

rc nvmlInit_v2(void) {
#ifdef FAULT_INIT
    return FAULT_INIT;
#endif
#ifdef FAULT_HANG_INIT
    for (;;) pause();
#endif
    printf("a banner on stdout that is no answer\n");
    fflush(stdout);
    return 0;
}
rc nvmlShutdown(void) {
#ifdef FAULT_HANG_SHUTDOWN
    for (;;) pause();
#endif
    return 0;
}
static rc put(char *out, unsigned length, const char *text) {
    if (strlen(text) >= length) return 7;
    strcpy(out, text);
    return 0;
}
rc nvmlSystemGetDriverVersion(char *out, unsigned length) { return put(out, length, "580.105.08"); }
rc nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
rc nvmlDeviceGetHandleByIndex_v2(unsigned index, device *out) {
    if (index > 1) return 2;
    *out = &gpus[index];
    return 0;
}
rc nvmlDeviceGetName(device gpu, char *out, unsigned length) { return put(out, length, gpu->index ? "two\033[31m" : "one"); }
rc nvmlDeviceGetSerial(device gpu, char *out, unsigned length) {
#ifdef FAULT_CRASH
    if (gpu->index == 1) *(volatile int *)8 = 0;
#endif
    return put(out, length, "165000");
}
rc nvmlDeviceGetTemperature(device gpu, unsigned sensor, unsigned *out) {
#ifdef FAULT_HANG
    if (gpu->index == 1) {
        signal(SIGTERM, SIG_IGN);
        for (;;) pause();
    }
#endif
    *out = 40 + gpu->index;
    return 0;
}
rc nvmlDeviceGetEccMode(device gpu, unsigned *current, unsigned *pending) { *current = 1; *pending = gpu->index; return 0; }
rc nvmlDeviceGetBrand(device gpu, unsigned *out) { *out = 4711; return 0; }
rc nvmlDeviceGetPowerUsage(device gpu, unsigned *out) { return 77; }
rc nvmlDeviceGetNumaNodeId(device gpu, unsigned *out) { return 3; }
rc nvmlDeviceGetCurrentClocksThrottleReasons(device gpu, unsigned long long *out) { *out = 0x480; return 0; }
struct fabric { unsigned version; unsigned char uuid[16]; unsigned status, clique, state, mask; };
rc nvmlDeviceGetGpuFabricInfoV(device gpu, struct fabric *out) {
    if (out->version != (sizeof *out | 2u << 24)) return 25;
    out->uuid[15] = 0xab;
    out->state = 3;
    out->mask = 0x55;
    return 0;
}
struct field { unsigned id, scope; long long time, latency; unsigned type; rc code; union { double d; int i; unsigned long long u; } value; };
rc nvmlDeviceGetFieldValues(device gpu, int count, struct field *out) {
    for (int at = 0; at < count; at++) {
        out[at].code = 0;
        out[at].type = 1;
        out[at].value.u = 0;
        if (out[at].id == 91) out[at].value.u = 1;
        else if (out[at].id == 193) { out[at].type = 5; out[at].value.i = -8; }
        else if (out[at].id == 164) { out[at].type = 3; out[at].value.u = 26000 + out[at].scope; }
        else out[at].code = 3;
    }
    return 0;
}
struct process { unsigned pid; unsigned long long used; unsigned gpu, compute; };
rc nvmlDeviceGetComputeRunningProcesses_v3(device gpu, unsigned *count, struct process *out) {
    unsigned room = *count;
    *count = gpu->index * 3;
    if (room < *count) return 7;
    for (unsigned at = 0; at < *count; at++) out[at] = (struct process){100 + at, ~0ull, ~0u, ~0u};
    return 0;
}
