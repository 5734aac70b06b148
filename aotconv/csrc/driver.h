// The GPU driver, opened at run time: CUDA's libcuda or AMD's HIP runtime. No vendor header is needed to build this;
// the few types below are the drivers' public binary interface.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstring>

#include "fault.h"
#include "storage.h"

// glibc 2.34 moved these into libc under a new version; the old name keeps the library loadable on older systems, and
// every Python that could load it has libdl in its global scope there.
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver dlerror, dlerror@GLIBC_2.2.5");

namespace aotconv {

enum Kind : int { kCuda = 0, kHip = 1 };

constexpr int kMaxDevices = 64;
constexpr int kMaxDynamicSharedAttribute = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kDefaultSharedLimit = 49152;     // more dynamic shared memory than this is an opt-in on CUDA

struct LaunchAttribute {  // CUlaunchAttribute
  int id;
  char pad[4];
  union {
    char bytes[64];
    struct { unsigned x, y, z; } cluster;
    int policy;
  } value;
};
static_assert(sizeof(LaunchAttribute) == 72);

struct LaunchConfig {  // CUlaunchConfig
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
  void* stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(sizeof(LaunchConfig) == 56);

constexpr int kClusterDimension = 4;   // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
constexpr int kClusterScheduling = 5;  // CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
constexpr int kClusterSpread = 1;      // CU_CLUSTER_SCHEDULING_POLICY_SPREAD

// The entry points. Where CUDA and HIP agree on the shape of a call, they share one pointer.
struct Entries {
  int (*init)(unsigned flags);
  int (*driver_version)(int* version);
  int (*device_attribute)(int* value, int attribute, int device);
  int (*module_load)(void** module, const void* image);
  int (*module_function)(void** function, void* module, const char* name);
  int (*function_attribute)(int* value, int attribute, void* function);
  int (*memset8)(void* where, unsigned char value, size_t count, void* stream);
  int (*launch)(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                unsigned shared, void* stream, void** parameters, void** extra);
  // CUDA alone
  int (*cuda_error)(int status, const char** text);
  int (*device_get)(int* device, int ordinal);
  int (*primary_retain)(void** context, int device);
  int (*context_current)(void** context);
  int (*context_push)(void* context);
  int (*context_pop)(void** context);
  int (*function_set)(void* function, int attribute, int value);
  int (*launch_ex)(const LaunchConfig* config, void* function, void** parameters, void** extra);
  int (*encode_tiled)(void* map, int dtype, uint32_t rank, void* base, const uint64_t* dims, const uint64_t* strides,
                      const uint32_t* box, const uint32_t* element_strides, int interleave, int swizzle, int promotion,
                      int fill);
  int (*encode_im2col)(void* map, int dtype, uint32_t rank, void* base, const uint64_t* dims, const uint64_t* strides,
                       const int* lower, const int* upper, uint32_t channels, uint32_t pixels,
                       const uint32_t* element_strides, int interleave, int swizzle, int promotion, int fill);
  // HIP alone
  const char* (*hip_error)(int status);
  int (*get_device)(int* device);
  int (*set_device)(int device);
};

struct Kernel {
  void* function;
  int device;
  int shared;  // the dynamic shared memory it may be launched with
};

struct Function {
  Kernel kernel;
  const void* image;
  size_t size;
  char* symbol;
};

class Driver {
 public:
  bool open(int kind, const char* path, Fault& fault);
  bool is_open() const { return open_.load(std::memory_order_acquire); }
  bool cuda() const { return kind_ == kCuda; }
  const Entries& call() const { return entries_; }
  int version() const { return version_; }

  // True when status is success; otherwise the fault says which call failed on what, and the driver's own words.
  bool ok(int status, const char* what, Fault& fault) const;

  bool need_open(Fault& fault) const {
    return is_open() || fault.set("the GPU driver is not open: call aotconv_open_driver before anything else");
  }
  int64_t load(int device, const void* image, size_t size, const char* symbol, int shared, Fault& fault);
  Kernel kernel(int64_t handle);  // its function is null when nothing was loaded under this handle
  bool device_attribute(int device, int attribute, int* out, Fault& fault);

  // Runs body with the device's primary context (HIP: the device) current, and restores what was current before.
  template <class Body>
  bool on_device(int device, Fault& fault, Body body) {
    return cuda() ? on_cuda(device, fault, body) : on_hip(device, fault, body);
  }

 private:
  bool resolve(Fault& fault);
  bool started(Fault& fault);
  bool primary(int device, void** context, Fault& fault);
  bool load_function(Function& made, Fault& fault);
  bool allow_shared(Function& made, int shared, Fault& fault);
  int64_t remember(const Function& made, Fault& fault);
  int64_t find(const Function& wanted) const;

  template <class Body>
  bool on_cuda(int device, Fault& fault, Body body) {
    void *wanted, *current = nullptr;
    if (!primary(device, &wanted, fault) || !ok(entries_.context_current(&current), "cuCtxGetCurrent", fault))
      return false;
    if (current == wanted) return body();
    if (!ok(entries_.context_push(wanted), "cuCtxPushCurrent", fault)) return false;
    bool done = body();
    int status = entries_.context_pop(&current);
    return done && ok(status, "cuCtxPopCurrent", fault);
  }

  template <class Body>
  bool on_hip(int device, Fault& fault, Body body) {
    int current = 0;
    if (!started(fault) || !ok(entries_.get_device(&current), "hipGetDevice", fault)) return false;
    if (current == device) return body();
    if (!ok(entries_.set_device(device), "hipSetDevice", fault)) return false;
    bool done = body();
    int status = entries_.set_device(current);
    return done && ok(status, "hipSetDevice", fault);
  }

  std::atomic<bool> open_{false};
  std::atomic<bool> started_{false};
  int kind_ = kCuda;
  int version_ = 0;
  void* library_ = nullptr;
  Entries entries_{};
  Mutex open_mutex_, start_mutex_, load_mutex_, table_mutex_;
  std::atomic<void*> contexts_[kMaxDevices] = {};
  Array<Function> functions_;
};

struct Symbol {
  const char* cuda;
  const char* hip;
  void** slot;
  bool required;
};

inline void* open_library(int kind, const char* path) {
  static const char* const cuda[] = {"libcuda.so.1", nullptr};
  static const char* const hip[] = {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", nullptr};
  if (path && *path) return dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const char* const* names = kind == kCuda ? cuda : hip;
  // First the one that torch has loaded: two copies of a runtime do not share modules and streams.
  for (int flags : {RTLD_NOW | RTLD_NOLOAD, RTLD_NOW | RTLD_LOCAL})
    for (const char* const* name = names; *name; ++name)
      if (void* library = dlopen(*name, flags)) return library;
  return nullptr;
}

inline bool Driver::open(int kind, const char* path, Fault& fault) {
  Lock lock(open_mutex_);
  if (kind != kCuda && kind != kHip) return fault.set("driver kind %d is unknown: pass 0 for CUDA or 1 for HIP", kind);
  if (is_open() && kind == kind_) return true;
  if (is_open())
    return fault.set("the %s driver is already open in this process, and %s was asked for: one process drives one kind "
                     "of GPU", cuda() ? "CUDA" : "HIP", kind == kCuda ? "CUDA" : "HIP");
  kind_ = kind;
  library_ = open_library(kind, path);
  if (!library_) {
    const char* reason = dlerror();
    return fault.set("the %s driver library cannot be loaded (%s): install the GPU driver, or use aten",
                     cuda() ? "CUDA" : "HIP", reason ? reason : "no reason given");
  }
  if (!resolve(fault) || !ok(entries_.driver_version(&version_), cuda() ? "cuDriverGetVersion" : "hipDriverGetVersion",
                             fault))
    return false;
  open_.store(true, std::memory_order_release);
  return true;
}

inline bool Driver::resolve(Fault& fault) {
  auto slot = [](auto& member) { return reinterpret_cast<void**>(&member); };
  Entries& e = entries_;
  const Symbol symbols[] = {
      {"cuInit", "hipInit", slot(e.init), true},
      {"cuDriverGetVersion", "hipDriverGetVersion", slot(e.driver_version), true},
      {"cuDeviceGetAttribute", "hipDeviceGetAttribute", slot(e.device_attribute), true},
      {"cuModuleLoadData", "hipModuleLoadData", slot(e.module_load), true},
      {"cuModuleGetFunction", "hipModuleGetFunction", slot(e.module_function), true},
      {"cuFuncGetAttribute", "hipFuncGetAttribute", slot(e.function_attribute), true},
      {"cuMemsetD8Async", "hipMemsetD8Async", slot(e.memset8), true},
      {"cuLaunchKernel", "hipModuleLaunchKernel", slot(e.launch), true},
      {"cuGetErrorString", nullptr, slot(e.cuda_error), true},
      {"cuDeviceGet", nullptr, slot(e.device_get), true},
      {"cuDevicePrimaryCtxRetain", nullptr, slot(e.primary_retain), true},
      {"cuCtxGetCurrent", nullptr, slot(e.context_current), true},
      {"cuCtxPushCurrent_v2", nullptr, slot(e.context_push), true},
      {"cuCtxPopCurrent_v2", nullptr, slot(e.context_pop), true},
      {"cuFuncSetAttribute", nullptr, slot(e.function_set), true},
      // Only Hopper's kernels need these, and old drivers lack them: decode refuses a plan that does.
      {"cuLaunchKernelEx", nullptr, slot(e.launch_ex), false},
      {"cuTensorMapEncodeTiled", nullptr, slot(e.encode_tiled), false},
      {"cuTensorMapEncodeIm2col", nullptr, slot(e.encode_im2col), false},
      {nullptr, "hipGetErrorString", slot(e.hip_error), true},
      {nullptr, "hipGetDevice", slot(e.get_device), true},
      {nullptr, "hipSetDevice", slot(e.set_device), true},
  };
  for (const Symbol& symbol : symbols) {
    const char* name = cuda() ? symbol.cuda : symbol.hip;
    if (!name) continue;
    *symbol.slot = dlsym(library_, name);
    if (!*symbol.slot && symbol.required)
      return fault.set("the %s driver library has no %s: it is too old or not a driver; update the GPU driver",
                       cuda() ? "CUDA" : "HIP", name);
  }
  return true;
}

inline bool Driver::ok(int status, const char* what, Fault& fault) const {
  if (__builtin_expect(status == 0, 1)) return true;
  const char* text = nullptr;
  if (cuda()) {
    if (entries_.cuda_error) entries_.cuda_error(status, &text);
  } else if (entries_.hip_error) {
    text = entries_.hip_error(status);
  }
  fault.status = status;
  return fault.set("%s failed with error %d (%s)", what, status, text ? text : "unknown to this driver");
}

// Not at open: opening must not initialise the GPU.
inline bool Driver::started(Fault& fault) {
  if (started_.load(std::memory_order_acquire)) return true;
  Lock lock(start_mutex_);
  if (!ok(entries_.init(0), cuda() ? "cuInit" : "hipInit", fault)) return false;
  started_.store(true, std::memory_order_release);
  return true;
}

inline bool Driver::primary(int device, void** context, Fault& fault) {
  if (device < 0 || device >= kMaxDevices)
    return fault.set("device %d is outside 0..%d: use a device that aotconv can address", device, kMaxDevices - 1);
  *context = contexts_[device].load(std::memory_order_acquire);
  if (*context) return true;
  if (!started(fault)) return false;
  Lock lock(start_mutex_);
  *context = contexts_[device].load(std::memory_order_acquire);
  if (*context) return true;
  int id = 0;
  if (!ok(entries_.device_get(&id, device), "cuDeviceGet", fault) ||
      !ok(entries_.primary_retain(context, id), "cuDevicePrimaryCtxRetain", fault))
    return false;
  // Never released: modules live in it until the process ends.
  contexts_[device].store(*context, std::memory_order_release);
  return true;
}

inline bool Driver::device_attribute(int device, int attribute, int* out, Fault& fault) {
  if (!need_open(fault) || !started(fault)) return false;
  int id = device;
  if (cuda() && !ok(entries_.device_get(&id, device), "cuDeviceGet", fault)) return false;
  return ok(entries_.device_attribute(out, attribute, id), cuda() ? "cuDeviceGetAttribute" : "hipDeviceGetAttribute",
            fault);
}

// Functions are added under both mutexes, so either is enough to read them.
inline int64_t Driver::find(const Function& wanted) const {
  for (size_t i = 0; i < functions_.size(); ++i) {
    const Function& known = functions_[i];
    if (known.kernel.device == wanted.kernel.device && known.image == wanted.image && known.size == wanted.size &&
        !std::strcmp(known.symbol, wanted.symbol))
      return int64_t(i) + 1;
  }
  return 0;
}

inline int64_t Driver::load(int device, const void* image, size_t size, const char* symbol, int shared, Fault& fault) {
  if (!need_open(fault)) return -1;
  if (!image || !size || !symbol || !*symbol || shared < 0) {
    fault.set("a kernel needs an image, its size, a symbol and shared memory >= 0: found image %p, %zu bytes, symbol "
              "\"%s\", %d bytes shared", image, size, symbol ? symbol : "", shared);
    return -1;
  }
  Lock one_at_a_time(load_mutex_);
  Function wanted{{nullptr, device, 0}, image, size, const_cast<char*>(symbol)};
  const int64_t handle = find(wanted);
  if (handle) wanted = functions_[size_t(handle) - 1];
  bool done = on_device(device, fault, [&] {
    return (handle || load_function(wanted, fault)) && allow_shared(wanted, shared, fault);
  });
  if (!done) return fault.status ? -int64_t(fault.status) : -1;
  if (!handle) return remember(wanted, fault);
  Lock table(table_mutex_);
  functions_.data()[handle - 1].kernel.shared = wanted.kernel.shared;
  return handle;
}

inline int64_t Driver::remember(const Function& made, Fault& fault) {
  char* symbol = strdup(made.symbol);
  Lock table(table_mutex_);
  Function* slot = symbol ? functions_.add() : nullptr;
  if (!slot) {
    fault.set("memory ran out while the kernel %s was loaded", made.symbol);
    std::free(symbol);
    return -1;
  }
  *slot = made;
  slot->symbol = symbol;
  return int64_t(functions_.size());
}

inline bool Driver::load_function(Function& made, Fault& fault) {
  void* module = nullptr;
  char what[256];
  std::snprintf(what, sizeof what, "loading the %zu-byte binary of %s on device %d", made.size, made.symbol,
                made.kernel.device);
  if (!ok(entries_.module_load(&module, made.image), what, fault)) return false;
  std::snprintf(what, sizeof what, "finding the kernel %s in its binary", made.symbol);
  return ok(entries_.module_function(&made.kernel.function, module, made.symbol), what, fault);
}

// HIP has no opt-in: LDS up to the device's limit is simply launched with.
inline bool Driver::allow_shared(Function& made, int shared, Fault& fault) {
  if (shared <= made.kernel.shared) return true;
  char what[256];
  std::snprintf(what, sizeof what, "giving the kernel %s %d bytes of shared memory", made.symbol, shared);
  if (cuda() && shared > kDefaultSharedLimit &&
      !ok(entries_.function_set(made.kernel.function, kMaxDynamicSharedAttribute, shared), what, fault))
    return false;
  made.kernel.shared = shared;
  return true;
}

inline Kernel Driver::kernel(int64_t handle) {
  Lock table(table_mutex_);
  if (handle < 1 || size_t(handle) > functions_.size()) return {};
  return functions_[size_t(handle) - 1].kernel;
}

}  // namespace aotconv
