// A GPU driver without a GPU, for the launcher's tests: CUDA's and HIP's entry points write what they were asked into a
// text log, and any of them can be told to fail. Built with -DOLD it lacks what drivers before Hopper lack.
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char journal[1 << 20];
static size_t journal_size;
static char failing[64];
static int failing_code;
static int version = 13020;
static int sizes[1024], size_count;  // of the next launch's parameters
static __thread void* contexts[16];
static __thread int depth;
static __thread int hip_device;

static void say(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  journal_size += (size_t)vsnprintf(journal + journal_size, sizeof journal - journal_size, format, arguments);
  va_end(arguments);
}

static void say_words(const char* name, const void* words, int count, int bytes) {
  say(" %s=", name);
  for (int i = 0; i < count; ++i)
    say(i ? ",%lld" : "%lld", bytes == 8 ? ((const long long*)words)[i] : (long long)((const int*)words)[i]);
}

static int done(const char* name) { return strcmp(name, failing) ? 0 : failing_code; }

// ---- what the test asks ---------------------------------------------------------------------------------------------

const char* fake_log(void) { return journal; }
void fake_clear(void) { journal_size = 0, journal[0] = 0; }
void fake_version(int value) { version = value; }
void fake_fail(const char* name, int code) { snprintf(failing, sizeof failing, "%s", name), failing_code = code; }
void fake_layout(const int* bytes, int count) { memcpy(sizes, bytes, sizeof(int) * (size_t)count), size_count = count; }
void fake_make_current(void* context) { contexts[depth = 0] = context; }

// A planner in C: every problem gets a plan without steps, so that only the launcher's own time is measured.
int fake_planner(const int64_t* key, int n, int64_t* out, int cap) {
  (void)key, (void)n, (void)cap;
  const int64_t plan[] = {0x41435031, 6, 0, 0, 0, 0};
  memcpy(out, plan, sizeof plan);
  return 6;
}

// Probes `count` keys of `words` words, numbered from `first`; gives nanoseconds a probe.
double fake_hammer(int (*probe)(const int64_t*, int), int64_t first, int64_t count, int64_t distinct, int words) {
  int64_t key[64] = {0};
  struct timespec from, to;
  clock_gettime(CLOCK_MONOTONIC, &from);
  for (int64_t i = 0; i < count; ++i) {
    key[words - 1] = first + i % distinct;
    if (!probe(key, words)) return -1;
  }
  clock_gettime(CLOCK_MONOTONIC, &to);
  return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / (double)count;
}

// ---- both drivers ---------------------------------------------------------------------------------------------------

static int load(const char* name, void** module, const void* image) {
  say("%s\n", name);
  *module = (void*)image;
  return done(name);
}

static int get_function(const char* name, void** function, void* module, const char* symbol) {
  say("%s %s\n", name, symbol);
  *function = (char*)module + 1;
  return done(name);
}

static void say_params(void** parameters) {
  say(" params=");
  for (int i = 0; i < size_count; ++i) {
    if (i) say(",");
    for (int j = 0; j < sizes[i]; ++j) say("%02x", ((unsigned char*)parameters[i])[j]);
  }
}

static int launch(const char* name, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                  unsigned shared, void* stream, void** parameters) {
  say("%s grid=%u,%u,%u block=%u,%u,%u shared=%u stream=%p", name, gx, gy, gz, bx, by, bz, shared, stream);
  say_params(parameters);
  say("\n");
  return done(name);
}

static int zero(const char* name, uintptr_t where, unsigned char value, size_t count, void* stream) {
  say("%s at=%p value=%d count=%zu stream=%p\n", name, (void*)where, value, count, stream);
  return done(name);
}

#define BOTH(cu, hip, parameters, ...)          \
  int cu parameters { const char* me = #cu; __VA_ARGS__ } \
  int hip parameters { const char* me = #hip; __VA_ARGS__ }

BOTH(cuInit, hipInit, (unsigned flags), say("%s %u\n", me, flags); return done(me);)
BOTH(cuDriverGetVersion, hipDriverGetVersion, (int* out), *out = version; return done(me);)
BOTH(cuDeviceGetAttribute, hipDeviceGetAttribute, (int* out, int attribute, int device),
     *out = 1000 * device + attribute; return done(me);)
BOTH(cuModuleLoadData, hipModuleLoadData, (void** module, const void* image), return load(me, module, image);)
BOTH(cuModuleGetFunction, hipModuleGetFunction, (void** function, void* module, const char* symbol),
     return get_function(me, function, module, symbol);)
BOTH(cuFuncGetAttribute, hipFuncGetAttribute, (int* out, int attribute, void* function),
     (void)function; *out = 100 + attribute; return done(me);)
BOTH(cuMemsetD8Async, hipMemsetD8Async, (uintptr_t where, unsigned char value, size_t count, void* stream),
     return zero(me, where, value, count, stream);)
BOTH(cuLaunchKernel, hipModuleLaunchKernel,
     (void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
      void* stream, void** parameters, void** extra),
     (void)f; (void)extra; return launch(me, gx, gy, gz, bx, by, bz, shared, stream, parameters);)

// ---- CUDA -----------------------------------------------------------------------------------------------------------

int cuGetErrorString(int status, const char** text) {
  static char sentence[64];
  snprintf(sentence, sizeof sentence, "fake cuda error %d", status);
  *text = sentence;
  return 0;
}

int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, done("cuDeviceGet"); }

int cuDevicePrimaryCtxRetain(void** context, int device) {
  say("cuDevicePrimaryCtxRetain %d\n", device);
  *context = (void*)(uintptr_t)(0x1000 + device);
  return done("cuDevicePrimaryCtxRetain");
}

int cuCtxGetCurrent(void** context) { return *context = contexts[depth], done("cuCtxGetCurrent"); }

int cuCtxPushCurrent_v2(void* context) {
  say("push %p\n", context);
  int status = done("cuCtxPushCurrent_v2");
  if (!status) contexts[++depth] = context;
  return status;
}

int cuCtxPopCurrent_v2(void** context) {
  say("pop %p\n", *context = contexts[depth--]);
  return done("cuCtxPopCurrent_v2");
}

int cuFuncSetAttribute(void* function, int attribute, int value) {
  (void)function;
  say("cuFuncSetAttribute %d=%d\n", attribute, value);
  return done("cuFuncSetAttribute");
}

#ifndef OLD
struct attribute { int id, pad; union { char bytes[64]; unsigned cluster[3]; int policy; } value; };
struct config { unsigned grid[3], block[3], shared; void* stream; struct attribute* attributes; unsigned count; };

int cuLaunchKernelEx(const struct config* c, void* function, void** parameters, void** extra) {
  (void)function, (void)extra;
  for (unsigned i = 0; i < c->count; ++i)
    say("attribute %d=%u,%u,%u\n", c->attributes[i].id, c->attributes[i].value.cluster[0],
        c->attributes[i].value.cluster[1], c->attributes[i].value.cluster[2]);
  return launch("cuLaunchKernelEx", c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2],
                c->shared, c->stream, parameters);
}

static void fill_map(const char* name, void* map, int dtype, unsigned rank, void* base, const void* dims,
                     const void* strides) {
  say("%s dtype=%d base=%p aligned=%d", name, dtype, base, (uintptr_t)map % 64 == 0);
  say_words("dims", dims, (int)rank, 8);
  say_words("strides", strides, (int)rank - 1, 8);
  memset(map, 0xff, 128);
}

int cuTensorMapEncodeTiled(void* map, int dtype, unsigned rank, void* base, const uint64_t* dims,
                           const uint64_t* strides, const uint32_t* box, const uint32_t* elements, int interleave,
                           int swizzle, int promotion, int fill) {
  fill_map("tiled", map, dtype, rank, base, dims, strides);
  say_words("box", box, (int)rank, 4);
  say_words("elements", elements, (int)rank, 4);
  say(" modes=%d,%d,%d,%d\n", interleave, swizzle, promotion, fill);
  return done("cuTensorMapEncodeTiled");
}

int cuTensorMapEncodeIm2col(void* map, int dtype, unsigned rank, void* base, const uint64_t* dims,
                            const uint64_t* strides, const int* lower, const int* upper, uint32_t channels,
                            uint32_t pixels, const uint32_t* elements, int interleave, int swizzle, int promotion,
                            int fill) {
  fill_map("im2col", map, dtype, rank, base, dims, strides);
  say_words("lower", lower, (int)rank - 2, 4);
  say_words("upper", upper, (int)rank - 2, 4);
  say(" channels=%u pixels=%u", channels, pixels);
  say_words("elements", elements, (int)rank, 4);
  say(" modes=%d,%d,%d,%d\n", interleave, swizzle, promotion, fill);
  return done("cuTensorMapEncodeIm2col");
}
#endif

// ---- HIP ------------------------------------------------------------------------------------------------------------

const char* hipGetErrorString(int status) {
  static char sentence[64];
  snprintf(sentence, sizeof sentence, "fake hip error %d", status);
  return sentence;
}

int hipGetDevice(int* device) { return *device = hip_device, done("hipGetDevice"); }

int hipSetDevice(int device) {
  say("hipSetDevice %d\n", device);
  hip_device = device;
  return done("hipSetDevice");
}
