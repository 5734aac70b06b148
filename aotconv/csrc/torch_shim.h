// The part of PyTorch's stable C ABI that the launcher calls, looked up in the libtorch that is already loaded. Python
// loads torch where undefined symbols of other libraries do not see it, and linking would need libtorch to build.
#pragma once

// torch's headers include <iostream>, whose initialiser would pull in all of libstdc++.
#define _GLIBCXX_IOSTREAM 1
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>

#include "driver.h"
#include "fault.h"

// Each must exist in torch 2.10: with TORCH_TARGET_VERSION at 2.10 the headers do not declare what is newer.
#define AOTCONV_TORCH_FUNCTIONS(X)    \
  X(aoti_torch_delete_tensor_object)  \
  X(aoti_torch_device_type_cuda)      \
  X(aoti_torch_dtype_uint8)           \
  X(aoti_torch_empty_strided)         \
  X(aoti_torch_get_device_index)      \
  X(aoti_torch_get_device_type)       \
  X(aoti_torch_get_dim)               \
  X(aoti_torch_get_dtype)             \
  X(aoti_torch_get_sizes)             \
  X(aoti_torch_get_strides)           \
  X(aoti_torch_library_def)           \
  X(aoti_torch_library_init_fragment) \
  X(aoti_torch_library_init_impl)     \
  X(torch_get_const_data_ptr)         \
  X(torch_get_mutable_data_ptr)       \
  X(torch_library_impl)

namespace aotconv {

struct Torch {
#define AOTCONV_MEMBER(name) decltype(&::name) name;
  AOTCONV_TORCH_FUNCTIONS(AOTCONV_MEMBER)
#undef AOTCONV_MEMBER

  bool find(Fault& fault);
};

inline bool Torch::find(Fault& fault) {
  void* library = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
  if (!library) return fault.set("libtorch_cpu.so is not loaded in this process: import torch first");
#define AOTCONV_FIND(name)                                            \
  name = reinterpret_cast<decltype(name)>(dlsym(library, #name));     \
  if (!name) return fault.set("the loaded libtorch has no " #name ": aotconv needs torch 2.10 or newer");
  AOTCONV_TORCH_FUNCTIONS(AOTCONV_FIND)
#undef AOTCONV_FIND
  return true;
}

}  // namespace aotconv
