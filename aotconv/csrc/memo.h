// The memo: problem -> plan, bounded, least recently used out first. Keys are compared word by word, never by hash alone.
#pragma once

#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

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
  using Pointer = std::shared_ptr<const Value>;  // null: this problem is aten's

  // On a miss, epoch is what insert must be given: a clear in between makes the answer stale.
  bool find(const KeyView& key, Pointer& out, uint64_t& epoch) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = index_.find(key);
    epoch = epoch_;
    if (found == index_.end()) return ++misses_, false;
    ++hits_;
    entries_.splice(entries_.begin(), entries_, found->second);
    out = found->second->value;
    return true;
  }

  void insert(const KeyView& key, Pointer value, uint64_t epoch) {
    std::list<Entry> made;  // allocated and freed with no lock held
    made.emplace_back(key, std::move(value));
    std::list<Entry> dropped;
    std::lock_guard<std::mutex> lock(mutex_);
    if (epoch != epoch_) return;
    auto found = index_.find(key);
    if (found != index_.end()) {
      std::swap(found->second->value, made.front().value);
      return;
    }
    index_.emplace(made.front().key, made.begin());
    entries_.splice(entries_.begin(), made);
    shrink(dropped);
  }

  // A plan that failed gives way to aten; the entry stays where it is, and one that has left stays away.
  void refuse(const KeyView& key) {
    Pointer dropped;
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = index_.find(key);
    if (found != index_.end()) std::swap(found->second->value, dropped);
  }

  void clear() {
    std::list<Entry> dropped;
    std::lock_guard<std::mutex> lock(mutex_);
    ++epoch_;
    index_.clear();
    dropped.swap(entries_);
  }

  void limit(size_t most) {
    std::list<Entry> dropped;
    std::lock_guard<std::mutex> lock(mutex_);
    limit_ = most < 1 ? 1 : most;
    shrink(dropped);
  }

  void stats(int64_t out[4]) {
    std::lock_guard<std::mutex> lock(mutex_);
    out[0] = int64_t(entries_.size());
    out[1] = hits_;
    out[2] = misses_;
    out[3] = evictions_;
  }

 private:
  struct Entry {
    Entry(const KeyView& seen, Pointer v) : words(new int64_t[size_t(seen.count) + 1]), value(std::move(v)) {
      std::memcpy(words.get(), seen.words, size_t(seen.count) * sizeof(int64_t));
      key = {words.get(), seen.count, seen.hash};
    }
    std::unique_ptr<int64_t[]> words;
    KeyView key;
    Pointer value;
  };
  struct Hash {
    size_t operator()(const KeyView& key) const { return key.hash; }
  };
  struct Equal {
    bool operator()(const KeyView& a, const KeyView& b) const {
      return a.hash == b.hash && a.count == b.count &&
             std::memcmp(a.words, b.words, size_t(a.count) * sizeof(int64_t)) == 0;
    }
  };

  void shrink(std::list<Entry>& dropped) {
    while (entries_.size() > limit_) {
      index_.erase(entries_.back().key);
      dropped.splice(dropped.begin(), entries_, std::prev(entries_.end()));
      ++evictions_;
    }
  }

  std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<KeyView, typename std::list<Entry>::iterator, Hash, Equal> index_;
  size_t limit_ = 4096;
  uint64_t epoch_ = 0;
  int64_t hits_ = 0, misses_ = 0, evictions_ = 0;
};

}  // namespace aotconv
