// One sentence that says what went wrong. Fixed storage: a failure must be reportable when memory is not available.
#pragma once

#include <cstdarg>
#include <cstddef>
#include <cstdio>

namespace aotconv {

class Fault {
 public:
  // Returns false, so that a check can end in `return fault.set(...)`.
  __attribute__((format(printf, 2, 3))) bool set(const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text_, sizeof text_, format, arguments);
    va_end(arguments);
    return false;
  }

  const char* text() const { return text_; }

  int status = 0;  // of the driver call that failed; 0 when it was not the driver

  void copy_to(char* out, size_t size) const {
    if (out && size) std::snprintf(out, size, "%s", text_);
  }

 private:
  char text_[512] = "";
};

}  // namespace aotconv
