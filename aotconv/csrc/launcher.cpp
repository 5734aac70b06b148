// aotconv's native launcher: one torch operator that looks its problem up in a memo and launches, and a plain C ABI
// for everything that happens rarely (aotconv/native.py wraps it). PyTorch's stable ABI only: no ATen, no CUDA headers.
#include <atomic>

#include "driver.h"
#include "fault.h"
#include "memo.h"
#include "plan.h"
#include "storage.h"
#include "torch_shim.h"

#define AOTCONV_API extern "C" __attribute__((visibility("default")))

using planner_fn = int (*)(const int64_t* key, int n, int64_t* out, int cap);
using report_fn = void (*)(const char* sentence);
using stream_fn = int (*)(int device, void** stream);

namespace aotconv {
namespace {

constexpr int kMaxKey = 64;        // three tensors of eight dimensions and what precedes them
constexpr int kPlanWords = 4096;
constexpr int kScalars = 5;
constexpr int kDeviceWord = kScalars;

// Never destroyed: threads may still call while the process exits.
union Forever {
  constexpr Forever() : all() {}
  ~Forever() {}
  struct {
    Driver driver;
    Memo<Plan> memo;
  } all;
};
constinit Forever forever;
Driver& driver = forever.all.driver;
Memo<Plan>& memo = forever.all.memo;

std::atomic<planner_fn> planner{nullptr};
std::atomic<report_fn> reporter{nullptr};
std::atomic<stream_fn> stream_getter{nullptr};
constinit Torch libtorch{};
constinit Mutex register_mutex;
bool registered = false;

void report(const Fault& fault) {
  if (report_fn say = reporter.load(std::memory_order_acquire)) say(fault.text());
}

// ---- plans ----------------------------------------------------------------------------------------------------------

using PlanPointer = Memo<Plan>::Pointer;

// Asks Python, with no lock held. Null means aten; what the planner said of this one time only is not remembered.
__attribute__((noinline)) PlanPointer make_plan(const KeyView& key, uint64_t epoch) {
  PlanPointer plan;
  planner_fn ask = planner.load(std::memory_order_acquire);
  if (!ask) return plan;
  int64_t words[kPlanWords];
  int count = ask(key.words, key.count, words, kPlanWords);
  if (count < 0) return plan;
  if (count > 0) {
    Fault fault;
    if (count > kPlanWords)
      fault.set("the planner says it wrote %d words into room for %d: a plan must fit", count, kPlanWords);
    else
      plan = decode(driver, words, count, key.count > kDeviceWord ? int(key.words[kDeviceWord]) : 0, fault);
    if (!plan) report(fault);
  }
  memo.insert(key, plan, epoch);
  return plan;
}

PlanPointer plan_of(const KeyView& key) {
  PlanPointer plan;
  uint64_t epoch = 0;
  return memo.find(key, plan, epoch) ? plan : make_plan(key, epoch);
}

// ---- tensors --------------------------------------------------------------------------------------------------------

// Owns a tensor handle, as the callee of a boxed kernel must.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(AtenTensorHandle handle) : handle_(handle) {}
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;
  ~Tensor() {
    if (handle_) libtorch.aoti_torch_delete_tensor_object(handle_);
  }
  explicit operator bool() const { return handle_ != nullptr; }
  AtenTensorHandle get() const { return handle_; }
  AtenTensorHandle* slot() { return &handle_; }
  AtenTensorHandle release() {
    AtenTensorHandle handle = handle_;
    handle_ = nullptr;
    return handle;
  }

 private:
  AtenTensorHandle handle_ = nullptr;
};

AtenTensorHandle as_tensor(StableIValue value) {
  return reinterpret_cast<AtenTensorHandle>(static_cast<uintptr_t>(value));
}

// The stable ABI passes an optional as null or as a heap box that the receiver frees. It says new and delete, which
// are malloc and free in libstdc++ and in every allocator that replaces it.
AtenTensorHandle as_optional(StableIValue value) {
  auto* box = reinterpret_cast<StableIValue*>(static_cast<uintptr_t>(value));
  if (!box) return nullptr;
  AtenTensorHandle handle = as_tensor(*box);
  std::free(box);
  return handle;
}

StableIValue boxed(Tensor& tensor) {
  auto* box = static_cast<StableIValue*>(std::malloc(sizeof(StableIValue)));
  if (!box) return 0;
  *box = static_cast<StableIValue>(reinterpret_cast<uintptr_t>(tensor.release()));
  return static_cast<StableIValue>(reinterpret_cast<uintptr_t>(box));
}

// The call's arguments, taken off torch's stack.
struct Arguments {
  Tensor tensors[3];
  int64_t scalars[kScalars];

  explicit Arguments(const StableIValue* stack)
      : tensors{Tensor(as_tensor(stack[0])), Tensor(as_tensor(stack[1])), Tensor(as_optional(stack[2]))} {
    std::memcpy(scalars, stack + 3, sizeof scalars);
  }
};

// ---- the key --------------------------------------------------------------------------------------------------------

struct Problem {
  int64_t words[kMaxKey];
  int count = 0;
  int device = 0;
  void* slots[kSlots] = {};

  bool read(const Arguments& arguments);

 private:
  bool read_device(const Arguments& arguments);
  bool read_tensor(AtenTensorHandle tensor, void** data);
};

// False also when the tensors are on different devices: aten says that in its own words.
bool Problem::read(const Arguments& arguments) {
  if (!read_device(arguments)) return false;
  std::memcpy(words, arguments.scalars, sizeof arguments.scalars);
  words[kDeviceWord] = device;
  words[kDeviceWord + 1] = 3 | (arguments.tensors[2] ? 4 : 0);
  count = kDeviceWord + 2;
  for (int i = 0; i < 3; ++i)
    if (arguments.tensors[i] && !read_tensor(arguments.tensors[i].get(), &slots[i])) return false;
  return true;
}

bool Problem::read_device(const Arguments& arguments) {
  const int32_t gpu = libtorch.aoti_torch_device_type_cuda();
  for (int i = 0; i < 3; ++i) {
    if (!arguments.tensors[i]) continue;
    int32_t type = -1, index = -1;
    if (libtorch.aoti_torch_get_device_type(arguments.tensors[i].get(), &type) || type != gpu) return false;
    if (libtorch.aoti_torch_get_device_index(arguments.tensors[i].get(), &index)) return false;
    if (i == 0) device = index;
    if (index != device) return false;
  }
  return true;
}

bool Problem::read_tensor(AtenTensorHandle tensor, void** data) {
  int32_t dtype = 0;
  int64_t ndim = 0, *sizes = nullptr, *strides = nullptr;
  const void* address = nullptr;
  if (libtorch.aoti_torch_get_dtype(tensor, &dtype) || libtorch.aoti_torch_get_dim(tensor, &ndim)) return false;
  if (count + 3 + 2 * ndim > kMaxKey) return false;
  if (libtorch.aoti_torch_get_sizes(tensor, &sizes) || libtorch.aoti_torch_get_strides(tensor, &strides) ||
      libtorch.torch_get_const_data_ptr(tensor, &address))
    return false;
  *data = const_cast<void*>(address);
  const uintptr_t bits = reinterpret_cast<uintptr_t>(address) | 16;
  words[count++] = dtype;
  words[count++] = ndim;
  words[count++] = int64_t(bits & (~bits + 1));  // the largest power of two that divides the address, 16 at most
  std::memcpy(words + count, sizes, size_t(ndim) * sizeof(int64_t));
  std::memcpy(words + count + ndim, strides, size_t(ndim) * sizeof(int64_t));
  count += int(2 * ndim);
  return true;
}

// ---- the call -------------------------------------------------------------------------------------------------------

// torch is already loaded wherever a CUDA tensor exists, but not where symbols of it can be linked against.
stream_fn find_stream_getter() {
  for (const char* name : {"libtorch_cuda.so", "libtorch_hip.so"})
    if (void* library = dlopen(name, RTLD_NOLOAD | RTLD_LAZY))
      if (void* getter = dlsym(library, "aoti_torch_get_current_cuda_stream"))
        return reinterpret_cast<stream_fn>(getter);
  return nullptr;
}

bool current_stream(int device, void** stream, Fault& fault) {
  stream_fn getter = stream_getter.load(std::memory_order_acquire);
  if (!getter) {
    getter = find_stream_getter();
    if (!getter)
      return fault.set("neither libtorch_cuda.so nor libtorch_hip.so is loaded with "
                       "aoti_torch_get_current_cuda_stream: aotconv needs a GPU build of torch >= 2.10");
    stream_getter.store(getter, std::memory_order_release);
  }
  return getter(device, stream) == 0 || fault.set("torch cannot tell the current stream of device %d", device);
}

bool allocate(int ndim, const int64_t* sizes, const int64_t* strides, int32_t dtype, int device, Tensor& tensor,
              void** data) {
  return !libtorch.aoti_torch_empty_strided(ndim, sizes, strides, dtype, libtorch.aoti_torch_device_type_cuda(), device,
                                            tensor.slot()) &&
         !libtorch.torch_get_mutable_data_ptr(tensor.get(), data);
}

bool allocate_all(const Plan& plan, int device, Tensor& out, Tensor& workspace, void** slots, Fault& fault) {
  if (!allocate(plan.ndim, plan.sizes, plan.strides, plan.out_dtype, device, out, &slots[3]))
    return fault.set("the output (rank %d, dtype %d) cannot be allocated on device %d: aten serves this call",
                     plan.ndim, int(plan.out_dtype), device);
  if (plan.idle || !plan.workspace_bytes) return true;
  const int64_t stride = 1;
  return allocate(1, &plan.workspace_bytes, &stride, libtorch.aoti_torch_dtype_uint8(), device, workspace, &slots[4]) ||
         fault.set("a workspace of %lld bytes cannot be allocated on device %d: aten serves this call",
                   static_cast<long long>(plan.workspace_bytes), device);
}

// The result, or 0 for "aten serves this call".
StableIValue serve(const Arguments& arguments) {
  Problem problem;
  if (!problem.read(arguments)) return 0;
  const KeyView key = view(problem.words, problem.count);
  PlanPointer plan = plan_of(key);
  if (!plan) return 0;
  Fault fault;
  Tensor out, workspace;
  if (!allocate_all(*plan, problem.device, out, workspace, problem.slots, fault)) return report(fault), 0;
  void* stream = nullptr;
  if (!current_stream(problem.device, &stream, fault) ||
      !run(driver, *plan, problem.device, stream, problem.slots, fault)) {
    memo.refuse(key);
    return report(fault), 0;
  }
  return boxed(out);
}

void run_on_gpu(StableIValue* stack, uint64_t, uint64_t) {
  StableIValue result = 0;
  {
    Arguments arguments(stack);
    result = serve(arguments);
  }
  stack[0] = result;
}

void run_on_cpu(StableIValue* stack, uint64_t, uint64_t) {
  { Arguments taken(stack); }
  stack[0] = 0;
}

// ---- registration ---------------------------------------------------------------------------------------------------

constexpr char kSchema[] =
    "_run(Tensor a, Tensor b, Tensor? c, int stride, int padding, int dilation, int output_padding, int geometry) "
    "-> Tensor?";

bool implement(const char* key, void (*kernel)(StableIValue*, uint64_t, uint64_t)) {
  TorchLibraryHandle library = nullptr;
  return !libtorch.aoti_torch_library_init_impl("aotconv", key, __FILE__, __LINE__, &library) &&
         !libtorch.torch_library_impl(library, "_run", kernel, TORCH_ABI_VERSION);
}

// A fragment, because Python's operators share the namespace. The handles are kept: deleting one unregisters.
bool register_operator(Fault& fault) {
  Lock lock(register_mutex);
  if (registered) return true;
  if (!libtorch.find(fault)) return false;
  TorchLibraryHandle library = nullptr;
  registered = !libtorch.aoti_torch_library_init_fragment("aotconv", __FILE__, __LINE__, &library) &&
               !libtorch.aoti_torch_library_def(library, kSchema) && implement("CUDA", run_on_gpu) &&
               implement("CPU", run_on_cpu);
  return registered || fault.set("torch refused the operator aotconv::_run (its reason is on standard error): is "
                                 "another copy of the launcher loaded?");
}

int answer(bool done, const Fault& fault, char* err, size_t errlen) {
  if (done) return 0;
  fault.copy_to(err, errlen);
  return fault.status ? -fault.status : -1;
}

}  // namespace
}  // namespace aotconv

using namespace aotconv;

// ---- the C ABI: negative is failure, minus the driver's error or -1, with a sentence in err where there is one ------

AOTCONV_API int aotconv_abi() { return 1; }

AOTCONV_API int aotconv_register(char* err, size_t errlen) {
  Fault fault;
  return answer(register_operator(fault), fault, err, errlen);
}

AOTCONV_API int aotconv_open_driver(int kind, const char* path, char* err, size_t errlen) {
  Fault fault;
  return answer(driver.open(kind, path, fault), fault, err, errlen);
}

AOTCONV_API void aotconv_set_planner(planner_fn function) { planner.store(function, std::memory_order_release); }

AOTCONV_API void aotconv_set_report(report_fn function) { reporter.store(function, std::memory_order_release); }

AOTCONV_API void aotconv_set_stream_getter(stream_fn function) {
  stream_getter.store(function, std::memory_order_release);
}

AOTCONV_API int64_t aotconv_load(int device, const void* image, size_t size, const char* symbol, int shared_bytes,
                                 char* err, size_t errlen) {
  Fault fault;
  int64_t handle = driver.load(device, image, size, symbol, shared_bytes, fault);
  if (handle < 0) fault.copy_to(err, errlen);
  return handle;
}

AOTCONV_API int aotconv_driver_version(int* out) {
  Fault fault;
  if (!driver.need_open(fault)) return -1;
  *out = driver.version();
  return 0;
}

AOTCONV_API int aotconv_device_attribute(int device, int attribute, int* out, char* err, size_t errlen) {
  Fault fault;
  return answer(driver.device_attribute(device, attribute, out, fault), fault, err, errlen);
}

AOTCONV_API int aotconv_function_attribute(int64_t handle, int attribute, int* out, char* err, size_t errlen) {
  Fault fault;
  Kernel kernel = driver.kernel(handle);
  if (!kernel.function) {
    fault.set("no kernel is loaded under handle %lld: load it first", static_cast<long long>(handle));
    return answer(false, fault, err, errlen);
  }
  bool done = driver.ok(driver.call().function_attribute(out, attribute, kernel.function),
                        driver.cuda() ? "cuFuncGetAttribute" : "hipFuncGetAttribute", fault);
  return answer(done, fault, err, errlen);
}

AOTCONV_API int aotconv_launch(const int64_t* plan, int n, int device, void* stream, void* const* pointers, char* err,
                               size_t errlen) {
  Fault fault;
  PlanPointer decoded = decode(driver, plan, n, device, fault);
  bool done = decoded && run(driver, *decoded, device, stream, pointers, fault);
  return answer(done, fault, err, errlen);
}

AOTCONV_API void aotconv_memo_clear() { memo.clear(); }

AOTCONV_API void aotconv_memo_stats(int64_t out[4]) { memo.stats(out); }

AOTCONV_API void aotconv_memo_limit(int most) { memo.limit(most < 1 ? 1 : size_t(most)); }

AOTCONV_API int aotconv_probe(const int64_t* key, int n) {
  return n >= 0 && plan_of(view(key, n)) ? 1 : 0;
}
