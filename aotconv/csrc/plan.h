// A plan: what a problem's kernels need, decoded once from the planner's words and then run on every call.
//
//   MAGIC out_dtype ndim sizes.. strides.. workspace_bytes zero_bytes n_steps step..
//   step:   handle gx gy gz threads shared cluster n_params param..
//   param:  kind value, and for a tensor map `value` more words, its recipe:
//   recipe: slot offset type dtype rank dims.. byte_strides..
//           tiled: box.. element_strides..   im2col: lower.. upper.. channels pixels element_strides..
//           swizzle l2_promotion fill
#pragma once

#include <cstdint>
#include <cstring>
#include <new>

#include "driver.h"
#include "fault.h"
#include "storage.h"

namespace aotconv {

constexpr int64_t kMagic = 0x41435031;  // "ACP1"
constexpr int kSlots = 5;               // a, b, c, out, workspace
constexpr int kMaxDims = 16;
constexpr int kMaxMapRank = 5;
constexpr int kMaxSteps = 64;
constexpr int kMaxParams = 1024;
constexpr size_t kMaxParamBytes = 4096;  // what every driver accepts
constexpr size_t kMapBytes = 128, kMapAlign = 64;

// Kinds below kSlots are pointers; 5 (i32) and 7 (f32 bits) are any other 32-bit word.
enum ParamKind : int64_t { kInt64 = 6, kNull = 8, kTensorMap = 9 };

struct MapRecipe {
  int slot, dtype, rank, swizzle, promotion, fill;
  bool im2col, small;
  int64_t offset;
  uint64_t dims[kMaxMapRank], strides[kMaxMapRank];  // strides of dims 1.., in bytes
  uint32_t box[kMaxMapRank], element_strides[kMaxMapRank];
  int lower[kMaxMapRank], upper[kMaxMapRank];
  uint32_t channels, pixels;
};

struct PointerPatch {
  uint32_t at;
  int slot;
  int64_t offset;
};

struct MapPatch {
  uint32_t at;
  MapRecipe recipe;
};

struct Range {
  uint32_t begin, end;
};

// A step's parts lie in the plan's arrays.
struct Step {
  void* function;
  unsigned grid[3], threads, shared, cluster;
  bool empty;                        // a grid of no programs
  Range image, at, pointers, maps;   // at: where each parameter lies in the step's image
};

struct Plan {
  std::atomic<int> uses{0};
  int32_t out_dtype = 0;
  int ndim = 0;
  int64_t sizes[kMaxDims] = {}, strides[kMaxDims] = {};
  int64_t workspace_bytes = 0, zero_bytes = 0;
  bool idle = true;  // nothing to launch: no workspace is needed either
  Array<Step> steps;
  Array<unsigned char> image;  // parameters, constants filled in
  Array<uint32_t> at;
  Array<PointerPatch> pointers;
  Array<MapPatch> maps;

  static Plan* make() {
    void* memory = std::malloc(sizeof(Plan));
    return memory ? new (memory) Plan : nullptr;
  }
  static void destroy(Plan* plan) {
    plan->~Plan();
    std::free(plan);
  }
};

// Reads the words of a plan; after the first fault every further read gives 0 and ok() stays false.
class Words {
 public:
  Words(const int64_t* words, int64_t count, Fault& fault) : words_(words), count_(count), fault_(fault) {}

  int64_t next(const char* what) {
    if (!ok_) return 0;
    if (at_ < count_) return words_[at_++];
    return ok_ = fault_.set("the plan ends after %lld words where its %s should stand: the planner wrote a short plan",
                            static_cast<long long>(count_), what);
  }

  int64_t in(const char* what, int64_t low, int64_t high) {
    int64_t value = next(what);
    if (ok_ && (value < low || value > high))
      refuse("word %lld of the plan, its %s, is %lld: expected %lld..%lld", static_cast<long long>(at_ - 1), what,
             static_cast<long long>(value), static_cast<long long>(low), static_cast<long long>(high));
    return ok_ ? value : 0;
  }

  template <class... Arguments>
  bool refuse(const char* format, Arguments... arguments) {
    if (ok_) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-security"
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
      fault_.set(format, arguments...);
#pragma GCC diagnostic pop
    }
    return ok_ = false;
  }

  bool ok() const { return ok_; }
  int64_t at() const { return at_; }
  int64_t left() const { return count_ - at_; }
  Fault& fault() { return fault_; }

 private:
  const int64_t* words_;
  int64_t count_, at_ = 0;
  bool ok_ = true;
  Fault& fault_;
};

constexpr int64_t kInt32Max = INT32_MAX, kUint32Max = UINT32_MAX, kBytesMax = int64_t(1) << 48;

// CUtensorMapDataType's element sizes, uint8 .. tfloat32_ftz; the packed types have none of their own.
constexpr int kMapElementBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};

inline bool is_small(const MapRecipe& map) {
  unsigned __int128 last = static_cast<unsigned __int128>(map.dims[0] - 1) * unsigned(kMapElementBytes[map.dtype]);
  for (int i = 1; i < map.rank; ++i) last += static_cast<unsigned __int128>(map.dims[i] - 1) * map.strides[i - 1];
  return last + 1 < 128 * 1024;
}

inline void decode_im2col(Words& words, MapRecipe& map) {
  for (int i = 0; i < map.rank - 2; ++i) map.lower[i] = int(words.in("im2col lower corner", INT32_MIN, kInt32Max));
  for (int i = 0; i < map.rank - 2; ++i) map.upper[i] = int(words.in("im2col upper corner", INT32_MIN, kInt32Max));
  map.channels = uint32_t(words.in("im2col channels", 1, kUint32Max));
  map.pixels = uint32_t(words.in("im2col pixels", 1, kUint32Max));
}

inline MapRecipe decode_map(Words& words) {
  MapRecipe map{};
  map.slot = int(words.in("tensor map slot", 0, kSlots - 1));
  map.offset = words.in("tensor map offset", 0, kBytesMax);
  map.im2col = words.in("tensor map type (0 tiled, 1 im2col)", 0, 1) == 1;
  map.dtype = int(words.in("tensor map dtype", 0, int64_t(sizeof kMapElementBytes / sizeof *kMapElementBytes) - 1));
  map.rank = int(words.in("tensor map rank", map.im2col ? 3 : 1, kMaxMapRank));
  for (int i = 0; i < map.rank; ++i) map.dims[i] = uint64_t(words.in("tensor map dimension", 1, int64_t(1) << 32));
  for (int i = 0; i < map.rank - 1; ++i) map.strides[i] = uint64_t(words.in("tensor map stride", 0, kBytesMax));
  if (map.im2col)
    decode_im2col(words, map);
  else
    for (int i = 0; i < map.rank; ++i) map.box[i] = uint32_t(words.in("tensor map box", 1, kUint32Max));
  for (int i = 0; i < map.rank; ++i)
    map.element_strides[i] = uint32_t(words.in("tensor map element stride", 1, kUint32Max));
  map.swizzle = int(words.in("tensor map swizzle", 0, kInt32Max));
  map.promotion = int(words.in("tensor map L2 promotion", 0, kInt32Max));
  map.fill = int(words.in("tensor map fill", 0, kInt32Max));
  map.small = words.ok() && !map.im2col && is_small(map);
  return map;
}

inline void check_map(Driver& driver, Words& words, const MapRecipe& map, int64_t length, int64_t used) {
  if (!words.ok()) return;
  if (length != used)
    words.refuse("a tensor map's recipe has %lld words where its rank needs %lld: the planner wrote a wrong length",
                 static_cast<long long>(length), static_cast<long long>(used));
  else if (!driver.cuda())
    words.refuse("the plan has a tensor map, and HIP has none: choose a kernel without tensor maps");
  else if (map.im2col ? !driver.call().encode_im2col : !driver.call().encode_tiled)
    words.refuse("the plan has a tensor map, and this driver (version %d) cannot encode one: update the GPU driver",
                 driver.version());
}

// Appends an item to one of the plan's arrays.
template <class Item>
void append(Words& words, Array<Item>& items, const Item& item) {
  Item* slot = items.add();
  if (slot)
    *slot = item;
  else
    words.refuse("memory ran out while a plan was decoded");
}

// Places one parameter in the step's image, aligned to its own size; gives where.
inline uint32_t place(Words& words, Plan& plan, const Step& step, const void* value, size_t size, size_t align) {
  const size_t used = plan.image.size() - step.image.begin;
  const size_t at = (used + align - 1) / align * align;
  if (at + size > kMaxParamBytes) {
    words.refuse("a step's parameters need more than %zu bytes: the driver accepts no more", kMaxParamBytes);
    return 0;
  }
  unsigned char* room = plan.image.add(at + size - used);
  if (!room)
    words.refuse("memory ran out while a plan was decoded");
  else if (value)
    std::memcpy(room + (at - used), value, size);
  append(words, plan.at, uint32_t(at));
  return uint32_t(at);
}

inline void decode_map_param(Driver& driver, Words& words, Plan& plan, const Step& step) {
  int64_t length = words.in("tensor map recipe length", 0, words.left() - 1);
  int64_t start = words.at();
  MapRecipe recipe = decode_map(words);
  check_map(driver, words, recipe, length, words.at() - start);
  uint32_t at = place(words, plan, step, nullptr, kMapBytes, kMapAlign);
  append(words, plan.maps, MapPatch{at, recipe});
}

inline void decode_pointer(Words& words, Plan& plan, const Step& step, int slot) {
  int64_t offset = words.in("pointer offset", 0, kBytesMax);
  uint32_t at = place(words, plan, step, nullptr, 8, 8);
  append(words, plan.pointers, PointerPatch{at, slot, offset});
}

inline void decode_param(Driver& driver, Words& words, Plan& plan, const Step& step) {
  int64_t kind = words.in("parameter kind", 0, kTensorMap);
  if (!words.ok()) return;
  if (kind < kSlots) return decode_pointer(words, plan, step, int(kind));
  if (kind == kTensorMap) return decode_map_param(driver, words, plan, step);
  if (kind == kInt64 || kind == kNull) {
    int64_t value = words.next("parameter value");
    if (kind == kNull) value = 0;
    place(words, plan, step, &value, 8, 8);
  } else {
    uint32_t value = uint32_t(words.in("32-bit parameter", INT32_MIN, kUint32Max));
    place(words, plan, step, &value, 4, 4);
  }
}

inline void decode_kernel(Driver& driver, Words& words, Step& step, int device) {
  int64_t handle = words.next("kernel handle");
  for (int i = 0; i < 3; ++i) step.grid[i] = unsigned(words.in("grid", 0, i == 0 ? kInt32Max : 65535));
  step.threads = unsigned(words.in("thread count", 1, 1024));
  step.shared = unsigned(words.in("shared memory", 0, kInt32Max));
  step.cluster = unsigned(words.in("cluster size", 1, 8));  // the portable limit: none of our kernels asks for more
  step.empty = !step.grid[0] || !step.grid[1] || !step.grid[2];
  if (!words.ok()) return;
  Kernel kernel = driver.kernel(handle);
  step.function = kernel.function;
  if (!kernel.function)
    words.refuse("the plan names kernel handle %lld, and none is loaded under it: load the kernel first",
                 static_cast<long long>(handle));
  else if (kernel.device != device)
    words.refuse("the plan's kernel %lld was loaded on device %d, and the tensors are on device %d: load it there too",
                 static_cast<long long>(handle), kernel.device, device);
  else if (driver.cuda() && step.shared > unsigned(kDefaultSharedLimit) && step.shared > unsigned(kernel.shared))
    words.refuse("the plan wants %u bytes of shared memory, and kernel %lld was loaded for %d: load it for as many",
                 step.shared, static_cast<long long>(handle), kernel.shared);
  else if (step.cluster > 1 && (!driver.cuda() || !driver.call().launch_ex))
    words.refuse("the plan wants clusters of %u, and this driver cannot launch clusters: choose another kernel",
                 step.cluster);
  else if (int64_t(step.grid[0]) * step.cluster > kInt32Max)
    words.refuse("the plan's grid of %u clusters of %u is over %lld blocks: choose a larger tile", step.grid[0],
                 step.cluster, static_cast<long long>(kInt32Max));
}

inline uint32_t size_of(size_t size) { return uint32_t(size); }

inline void decode_step(Driver& driver, Words& words, Plan& plan, int device) {
  Step step{};
  decode_kernel(driver, words, step, device);
  step.image.begin = size_of(plan.image.size());
  step.at.begin = size_of(plan.at.size());
  step.pointers.begin = size_of(plan.pointers.size());
  step.maps.begin = size_of(plan.maps.size());
  int64_t count = words.in("parameter count", 0, kMaxParams);
  for (int64_t i = 0; i < count && words.ok(); ++i) decode_param(driver, words, plan, step);
  step.image.end = size_of(plan.image.size());
  step.at.end = size_of(plan.at.size());
  step.pointers.end = size_of(plan.pointers.size());
  step.maps.end = size_of(plan.maps.size());
  append(words, plan.steps, step);
  plan.idle = plan.idle && step.empty;
}

inline void decode_head(Words& words, Plan& plan) {
  int64_t magic = words.next("magic");
  if (words.ok() && magic != kMagic)
    words.refuse("the plan begins with %#llx, expected %#llx: runtime and launcher are of different versions",
                 static_cast<unsigned long long>(magic), static_cast<unsigned long long>(kMagic));
  plan.out_dtype = int32_t(words.in("output dtype", 0, 127));
  plan.ndim = int(words.in("output rank", 0, kMaxDims));
  for (int i = 0; i < plan.ndim; ++i) plan.sizes[i] = words.in("output size", 0, kBytesMax);
  for (int i = 0; i < plan.ndim; ++i) plan.strides[i] = words.in("output stride", 0, kBytesMax);
  plan.workspace_bytes = words.in("workspace size", 0, kBytesMax);
  plan.zero_bytes = words.in("zeroed workspace size", 0, plan.workspace_bytes);
}

// Null when the words are not a sound plan for this device: the fault then says which word is wrong.
inline Ref<Plan> decode(Driver& driver, const int64_t* data, int64_t count, int device, Fault& fault) {
  Words words(data, count, fault);
  Ref<Plan> plan(Plan::make());
  if (!plan) return fault.set("memory ran out while a plan was decoded"), plan;
  decode_head(words, *plan);
  int64_t steps = words.in("step count", 0, kMaxSteps);
  for (int64_t i = 0; i < steps && words.ok(); ++i) decode_step(driver, words, *plan, device);
  if (words.ok() && words.left())
    words.refuse("the plan has %lld words after its last step: its counts and its length disagree",
                 static_cast<long long>(words.left()));
  return words.ok() ? plan : Ref<Plan>();
}

inline char* slot_address(void* const* slots, int slot, int64_t offset) {
  return slots[slot] ? static_cast<char*>(slots[slot]) + offset : nullptr;
}

inline bool encode_map(Driver& driver, const MapRecipe& map, void* const* slots, unsigned char* out, Fault& fault) {
  const Entries& call = driver.call();
  void* base = slot_address(slots, map.slot, map.offset);
  if (map.im2col)
    return driver.ok(call.encode_im2col(out, map.dtype, uint32_t(map.rank), base, map.dims, map.strides, map.lower,
                                        map.upper, map.channels, map.pixels, map.element_strides, 0, map.swizzle,
                                        map.promotion, map.fill),
                     "cuTensorMapEncodeIm2col", fault);
  if (!driver.ok(call.encode_tiled(out, map.dtype, uint32_t(map.rank), base, map.dims, map.strides, map.box,
                                   map.element_strides, 0, map.swizzle, map.promotion, map.fill),
                 "cuTensorMapEncodeTiled", fault))
    return false;
  // Drivers up to CUDA 13.1 mark small tiled maps wrongly; Triton and CUTLASS clear the same bit (Triton's driver.c).
  if (map.small && driver.version() <= 13010) {
    uint64_t word;
    std::memcpy(&word, out + 8, sizeof word);
    word &= ~(uint64_t(1) << 21);
    std::memcpy(out + 8, &word, sizeof word);
  }
  return true;
}

inline bool launch_clusters(Driver& driver, const Step& step, void* stream, void** parameters, Fault& fault) {
  LaunchAttribute attributes[2] = {};
  attributes[0].id = kClusterDimension;
  attributes[0].value.cluster = {step.cluster, 1, 1};
  attributes[1].id = kClusterScheduling;
  attributes[1].value.policy = kClusterSpread;
  LaunchConfig config = {step.grid[0] * step.cluster, step.grid[1], step.grid[2], step.threads, 1, 1, step.shared,
                         stream, attributes, 2};
  return driver.ok(driver.call().launch_ex(&config, step.function, parameters, nullptr), "cuLaunchKernelEx", fault);
}

// Lays the step's parameters out in buffer, which has room and alignment for any step.
inline bool marshal(Driver& driver, const Plan& plan, const Step& step, void* const* slots, unsigned char* buffer,
                    void** parameters, Fault& fault) {
  if (step.image.end > step.image.begin)
    std::memcpy(buffer, plan.image.data() + step.image.begin, step.image.end - step.image.begin);
  for (uint32_t i = step.at.begin; i < step.at.end; ++i) *parameters++ = buffer + plan.at[i];
  for (uint32_t i = step.pointers.begin; i < step.pointers.end; ++i) {
    const PointerPatch& patch = plan.pointers[i];
    char* address = slot_address(slots, patch.slot, patch.offset);
    std::memcpy(buffer + patch.at, &address, sizeof address);
  }
  for (uint32_t i = step.maps.begin; i < step.maps.end; ++i)
    if (!encode_map(driver, plan.maps[i].recipe, slots, buffer + plan.maps[i].at, fault)) return false;
  return true;
}

inline bool launch_step(Driver& driver, const Plan& plan, const Step& step, void* stream, void* const* slots,
                        Fault& fault) {
  if (step.empty) return true;
  alignas(kMapAlign) unsigned char buffer[kMaxParamBytes];
  void* parameters[kMaxParams];
  if (!marshal(driver, plan, step, slots, buffer, parameters, fault)) return false;
  if (step.cluster > 1) return launch_clusters(driver, step, stream, parameters, fault);
  return driver.ok(driver.call().launch(step.function, step.grid[0], step.grid[1], step.grid[2], step.threads, 1, 1,
                                        step.shared, stream, parameters, nullptr),
                   driver.cuda() ? "cuLaunchKernel" : "hipModuleLaunchKernel", fault);
}

inline bool zero_workspace(Driver& driver, const Plan& plan, void* stream, void* const* slots, Fault& fault) {
  if (!plan.zero_bytes) return true;
  return driver.ok(driver.call().memset8(slots[4], 0, size_t(plan.zero_bytes), stream),
                   driver.cuda() ? "cuMemsetD8Async" : "hipMemsetD8Async", fault);
}

inline bool run(Driver& driver, const Plan& plan, int device, void* stream, void* const* slots, Fault& fault) {
  if (plan.idle) return true;
  if (!driver.need_open(fault)) return false;
  if (plan.workspace_bytes && !slots[4])
    return fault.set("the plan needs a workspace of %lld bytes and was given none: pass it as the fifth pointer",
                     static_cast<long long>(plan.workspace_bytes));
  return driver.on_device(device, fault, [&] {
    if (!zero_workspace(driver, plan, stream, slots, fault)) return false;
    for (size_t i = 0; i < plan.steps.size(); ++i)
      if (!launch_step(driver, plan, plan.steps[i], stream, slots, fault)) return false;
    return true;
  });
}

}  // namespace aotconv
