// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace trireme::local {

/// A queue in one block of memory that only grows: unlike std::deque, alternating push and pop does
/// not allocate. A push may move its elements.
template <class T>
class RingQueue {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return items_[(head_ + i) & (capacity_ - 1)]; }
  const T& operator[](size_t i) const { return items_[(head_ + i) & (capacity_ - 1)]; }
  T& front() { return items_[head_]; }
  T& push(T item) {
    if (size_ == capacity_) grow();
    return (*this)[size_++] = std::move(item);
  }
  /// Returns the new last element with its old contents, for the caller to overwrite; nothing is
  /// moved.
  T& extend() {
    if (size_ == capacity_) grow();
    return (*this)[size_++];
  }
  void pop() {
    head_ = (head_ + 1) & (capacity_ - 1);
    --size_;
  }
  /// Keeps the order of the others; the cost is linear in the number of elements before it.
  void erase(size_t i) {
    for (; i > 0; --i) (*this)[i] = std::move((*this)[i - 1]);
    pop();
  }

 private:
  void grow() {
    const size_t capacity = capacity_ ? capacity_ * 2 : 8;
    std::unique_ptr<T[]> items(new T[capacity]);
    for (size_t i = 0; i < size_; ++i) items[i] = std::move((*this)[i]);
    items_ = std::move(items);
    capacity_ = capacity;
    head_ = 0;
  }

  std::unique_ptr<T[]> items_;
  size_t capacity_ = 0, head_ = 0, size_ = 0;  // capacity: a power of two
};

}  // namespace trireme::local
