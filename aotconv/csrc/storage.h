// The few containers that the launcher needs, on malloc and pthreads alone. Without the C++ run-time library there is
// no exception that could cross the ABI, and the binary loads on any glibc that torch does (libstdc++.a would ask for
// the build machine's).
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

namespace aotconv {

class Mutex {
 public:
  void lock() { pthread_mutex_lock(&mutex_); }
  void unlock() { pthread_mutex_unlock(&mutex_); }

 private:
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

class Lock {
 public:
  explicit Lock(Mutex& mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() { mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Mutex& mutex_;
};

// A growing array of plain values.
template <class T>
class Array {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() { std::free(items_); }

  // Room for count more, zeroed; null when memory is out.
  T* add(size_t count = 1) {
    if (size_ + count > room_ && !grow(size_ + count)) return nullptr;
    T* made = items_ + size_;
    std::memset(static_cast<void*>(made), 0, count * sizeof(T));
    size_ += count;
    return made;
  }

  size_t size() const { return size_; }
  T* data() { return items_; }
  const T* data() const { return items_; }
  const T& operator[](size_t i) const { return items_[i]; }

 private:
  bool grow(size_t least) {
    size_t room = least > 2 * room_ ? least : 2 * room_;
    void* moved = std::realloc(static_cast<void*>(items_), room * sizeof(T));
    if (!moved) return false;
    items_ = static_cast<T*>(moved);
    room_ = room;
    return true;
  }

  T* items_ = nullptr;
  size_t size_ = 0, room_ = 0;
};

// Shared ownership; T has an atomic `uses` that begins at 0, and a static destroy(const T*).
template <class T>
class Ref {
 public:
  Ref() = default;
  explicit Ref(T* item) : item_(item) { keep(); }
  Ref(const Ref& other) : item_(other.item_) { keep(); }
  Ref(Ref&& other) noexcept : item_(std::exchange(other.item_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(item_, other.item_);
    return *this;
  }
  ~Ref() {
    if (item_ && item_->uses.fetch_sub(1, std::memory_order_acq_rel) == 1) T::destroy(item_);
  }
  explicit operator bool() const { return item_ != nullptr; }
  T& operator*() const { return *item_; }
  T* operator->() const { return item_; }

 private:
  void keep() {
    if (item_) item_->uses.fetch_add(1, std::memory_order_relaxed);
  }

  T* item_ = nullptr;
};

}  // namespace aotconv
