// The part of libtorch that the launcher calls, without torch: tensors are plain structs on an imaginary GPU, and every
// handle is counted, so that a test sees what the operator leaks, launches and answers. Loaded as libtorch_cpu.so.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CPU = 0, GPU = 1 };

struct tensor {
  int32_t dtype, type, device;
  int64_t ndim, sizes[16], strides[16];
  char* data;
};

typedef struct tensor* handle;
typedef void (*kernel_fn)(uint64_t* stack, uint64_t inputs, uint64_t outputs);

static kernel_fn kernels[2];
static int live, allocations, allocations_left = -1;
static struct tensor last[2];  // the two tensors allocated last: the output, and the workspace if there is one
static char schema[256];

// ---- what the test asks ---------------------------------------------------------------------------------------------

int fake_live(void) { return live; }
const char* fake_schema(void) { return schema; }
void fake_allocations_left(int count) { allocations_left = count; }
struct tensor* fake_allocated(int i) { return &last[i]; }
int fake_allocations(void) { return allocations; }
void fake_forget(void) { allocations = 0; }

static handle new_handle(const struct tensor* from) {
  handle made = malloc(sizeof *made);
  *made = *from;
  ++live;
  return made;
}

// Calls the operator as torch's dispatcher does; gives 1 and the tensor, or 0 for None.
int fake_call(int type, const struct tensor* a, const struct tensor* b, const struct tensor* c, const int64_t* scalars,
              struct tensor* result) {
  uint64_t stack[8] = {(uintptr_t)new_handle(a), (uintptr_t)new_handle(b)};
  if (c) {
    uint64_t* box = malloc(sizeof *box);
    *box = (uintptr_t)new_handle(c);
    stack[2] = (uintptr_t)box;
  }
  memcpy(stack + 3, scalars, 5 * sizeof *stack);
  kernels[type](stack, 8, 1);
  if (!stack[0]) return 0;
  uint64_t* box = (uint64_t*)(uintptr_t)stack[0];
  handle made = (handle)(uintptr_t)*box;
  *result = *made;
  free(made), free(box), --live;
  return 1;
}

// Nanoseconds a call.
double fake_time(int count, const struct tensor* a, const struct tensor* b, const struct tensor* c,
                 const int64_t* scalars) {
  struct timespec from, to;
  struct tensor result;
  clock_gettime(CLOCK_MONOTONIC, &from);
  for (int i = 0; i < count; ++i) fake_call(GPU, a, b, c, scalars, &result);
  clock_gettime(CLOCK_MONOTONIC, &to);
  return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / count;
}

// ---- registration ---------------------------------------------------------------------------------------------------

static void* keys[] = {"CPU", "CUDA"};

int aoti_torch_library_init_fragment(const char* name, const char* file, uint32_t line, void** library) {
  (void)name, (void)file, (void)line;
  *library = schema;
  return 0;
}

int aoti_torch_library_init_impl(const char* name, const char* key, const char* file, uint32_t line, void** library) {
  (void)name, (void)file, (void)line;
  *library = &keys[!strcmp(key, "CUDA")];
  return 0;
}

int aoti_torch_library_def(void* library, const char* text) { return strcpy(library, text), 0; }

int torch_library_impl(void* library, const char* name, kernel_fn function, uint64_t version) {
  (void)name, (void)version;
  kernels[(void**)library - keys] = function;
  return 0;
}

// ---- tensors --------------------------------------------------------------------------------------------------------

int32_t aoti_torch_device_type_cuda(void) { return GPU; }
int32_t aoti_torch_dtype_uint8(void) { return 0; }
int aoti_torch_get_dtype(handle t, int32_t* out) { return *out = t->dtype, 0; }
int aoti_torch_get_device_type(handle t, int32_t* out) { return *out = t->type, 0; }
int aoti_torch_get_device_index(handle t, int32_t* out) { return *out = t->device, 0; }
int aoti_torch_get_dim(handle t, int64_t* out) { return *out = t->ndim, 0; }
int aoti_torch_get_sizes(handle t, int64_t** out) { return *out = t->sizes, 0; }
int aoti_torch_get_strides(handle t, int64_t** out) { return *out = t->strides, 0; }
int torch_get_const_data_ptr(handle t, const void** out) { return *out = t->data, 0; }
int torch_get_mutable_data_ptr(handle t, void** out) { return *out = t->data, 0; }
int aoti_torch_delete_tensor_object(handle t) { return free(t), --live, 0; }

int aoti_torch_empty_strided(int64_t ndim, const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t type,
                             int32_t device, handle* out) {
  if (!allocations_left) return 1;
  if (allocations_left > 0) --allocations_left;
  struct tensor made = {dtype, type, device, ndim, {0}, {0}, (char*)(0x900000 + 0x1000 * (uintptr_t)(allocations % 2))};
  memcpy(made.sizes, sizes, sizeof(int64_t) * (size_t)ndim);
  memcpy(made.strides, strides, sizeof(int64_t) * (size_t)ndim);
  last[allocations++ % 2] = made;
  *out = new_handle(&made);
  return 0;
}

// As of libtorch_cuda.so: this file is loaded under that name too.
int aoti_torch_get_current_cuda_stream(int32_t device, void** stream) {
  return *stream = (void*)(uintptr_t)(0x700 + device), 0;
}
