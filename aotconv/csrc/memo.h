// The memo: problem -> plan, bounded, least recently used out first. Keys are compared whole, never by hash alone.
#pragma once

#include <cstdint>
#include <new>

#include "storage.h"

namespace aotconv {

struct KeyView {
  const int64_t* words;
  int count;
  uint64_t hash;
};

inline uint64_t fold(uint64_t a, uint64_t b) {
  unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return uint64_t(product) ^ uint64_t(product >> 64);
}

// Two words a multiplication: a key has some forty words and is hashed on every call.
inline KeyView view(const int64_t* words, int count) {
  constexpr uint64_t kOdd1 = 0x9e3779b97f4a7c15u, kOdd2 = 0xd1b54a32d192ed03u;
  uint64_t hash = kOdd1 + uint64_t(count);
  int i = 0;
  for (; i + 1 < count; i += 2) hash = fold(hash ^ uint64_t(words[i]), kOdd1 ^ uint64_t(words[i + 1])) + kOdd2;
  if (i < count) hash = fold(hash ^ uint64_t(words[i]), kOdd2);
  return {words, count, fold(hash ^ kOdd2, kOdd1)};
}

template <class Value>
class Memo {
 public:
  using Pointer = Ref<Value>;  // null: this problem is aten's

  // On a miss, epoch is what insert must be given: a clear in between makes the answer stale.
  bool find(const KeyView& key, Pointer& out, uint64_t& epoch) {
    Lock lock(mutex_);
    Entry* found = lookup(key);
    epoch = epoch_;
    if (!found) return ++misses_, false;
    ++hits_;
    unlink(found);
    link_newest(found);
    out = found->value;
    return true;
  }

  // Entries and plans are allocated and freed with no lock held.
  void insert(const KeyView& key, Pointer value, uint64_t epoch) {
    Entry* made = make(key, value);
    if (!made) return;  // a memo may forget
    Entry* dropped = made;
    {
      Lock lock(mutex_);
      if (epoch == epoch_) dropped = place(made);
    }
    destroy(dropped);
  }

  // A plan that failed gives way to aten; a key that is gone stays away.
  void refuse(const KeyView& key) {
    Pointer dropped;
    Lock lock(mutex_);
    if (Entry* found = lookup(key)) std::swap(found->value, dropped);
  }

  void clear() {
    Entry* dropped = nullptr;
    {
      Lock lock(mutex_);
      ++epoch_;
      while (oldest_) dropped = take(oldest_, dropped);
    }
    destroy(dropped);
  }

  void limit(size_t most) {
    Entry* dropped = nullptr;
    {
      Lock lock(mutex_);
      limit_ = most < 1 ? 1 : most;
      dropped = shrink();
    }
    destroy(dropped);
  }

  void stats(int64_t out[4]) {
    Lock lock(mutex_);
    out[0] = int64_t(size_);
    out[1] = hits_;
    out[2] = misses_;
    out[3] = evictions_;
  }

 private:
  struct Entry {
    Entry *next, *newer, *older;  // next: in the bucket, or in a list of entries to destroy
    KeyView key;
    Pointer value;
  };

  static constexpr size_t kDefaultLimit = 4096, kBuckets = 2 * kDefaultLimit;

  static Entry* make(const KeyView& key, const Pointer& value) {
    size_t bytes = size_t(key.count) * sizeof(int64_t);
    void* memory = std::malloc(sizeof(Entry) + bytes);
    if (!memory) return nullptr;
    auto* words = reinterpret_cast<int64_t*>(static_cast<char*>(memory) + sizeof(Entry));
    std::memcpy(words, key.words, bytes);
    return new (memory) Entry{nullptr, nullptr, nullptr, {words, key.count, key.hash}, value};
  }

  static void destroy(Entry* entry) {
    while (entry) {
      Entry* next = entry->next;
      entry->~Entry();
      std::free(entry);
      entry = next;
    }
  }

  Entry*& bucket(const KeyView& key) { return buckets_[key.hash % kBuckets]; }

  Entry* lookup(const KeyView& key) {
    for (Entry* entry = bucket(key); entry; entry = entry->next)
      if (entry->key.hash == key.hash && entry->key.count == key.count &&
          std::memcmp(entry->key.words, key.words, size_t(key.count) * sizeof(int64_t)) == 0)
        return entry;
    return nullptr;
  }

  // Gives back what must be destroyed: the entry itself when the key is already there, or what it pushed out.
  Entry* place(Entry* made) {
    if (Entry* found = lookup(made->key)) {
      std::swap(found->value, made->value);
      return made;
    }
    made->next = bucket(made->key);
    bucket(made->key) = made;
    link_newest(made);
    ++size_;
    return shrink();
  }

  Entry* shrink() {
    Entry* dropped = nullptr;
    for (; size_ > (limit_ ? limit_ : kDefaultLimit); ++evictions_) dropped = take(oldest_, dropped);
    return dropped;
  }

  // Takes an entry out of the memo and puts it before rest.
  Entry* take(Entry* entry, Entry* rest) {
    Entry** at = &bucket(entry->key);
    while (*at != entry) at = &(*at)->next;
    *at = entry->next;
    unlink(entry);
    --size_;
    entry->next = rest;
    return entry;
  }

  void link_newest(Entry* entry) {
    entry->newer = nullptr;
    entry->older = newest_;
    (newest_ ? newest_->newer : oldest_) = entry;
    newest_ = entry;
  }

  void unlink(Entry* entry) {
    (entry->newer ? entry->newer->older : newest_) = entry->older;
    (entry->older ? entry->older->newer : oldest_) = entry->newer;
  }

  Mutex mutex_;
  Entry* buckets_[kBuckets] = {};
  Entry *newest_ = nullptr, *oldest_ = nullptr;
  size_t size_ = 0, limit_ = 0;  // 0 is the default: a memo of zeros takes no room in the file
  uint64_t epoch_ = 0;
  int64_t hits_ = 0, misses_ = 0, evictions_ = 0;
};

}  // namespace aotconv
