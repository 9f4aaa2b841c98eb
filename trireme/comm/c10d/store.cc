// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/c10d/store.h"

#include <string_view>
#include <thread>

#include "trireme/base/check.h"

namespace trireme::detail {
namespace {

constexpr Duration kSlice = std::chrono::milliseconds(50);

std::string_view text(const std::vector<uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

}  // namespace

C10dStore::C10dStore(std::shared_ptr<trireme::Store> store, Deadline deadline,
                     std::function<void()> look)
    : store_(std::move(store)), deadline_(deadline), look_(std::move(look)) {}

void C10dStore::close() {
  std::lock_guard lock(mutex_);
  store_.reset();
  look_ = {};
}

trireme::Store& C10dStore::open() {
  trireme::check<UsageError>(store_ != nullptr,
                             "the process group has met, and its store was closed");
  return *store_;
}

void C10dStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  std::lock_guard lock(mutex_);
  open().set(key, text(value));
}

std::vector<uint8_t> C10dStore::compareSet(const std::string& key,
                                           const std::vector<uint8_t>& expected,
                                           const std::vector<uint8_t>& desired) {
  std::lock_guard lock(mutex_);
  return bytes(open().compare_set(key, text(expected), text(desired)));
}

std::vector<uint8_t> C10dStore::get(const std::string& key) {
  wait({key});
  std::lock_guard lock(mutex_);
  return bytes(open().get(key, deadline_));
}

int64_t C10dStore::add(const std::string& key, int64_t value) {
  std::lock_guard lock(mutex_);
  return open().add(key, value);
}

bool C10dStore::deleteKey(const std::string& key) {
  std::lock_guard lock(mutex_);
  return open().delete_key(key);
}

bool C10dStore::check(const std::vector<std::string>& keys) {
  std::lock_guard lock(mutex_);
  return open().check(keys);
}

int64_t C10dStore::getNumKeys() {
  std::lock_guard lock(mutex_);
  return open().num_keys();
}

void C10dStore::wait(const std::vector<std::string>& keys) {
  for (;;) {
    if (look_) look_();
    {
      std::lock_guard lock(mutex_);
      try {
        return open().wait(keys,
                           Deadline::after(std::min<Duration>(kSlice, deadline_.remaining())));
      } catch (const Timeout&) {
        if (deadline_.expired()) throw;
      }
    }
    std::this_thread::yield();  // let another thread take its turn
  }
}

// This object sets the limit: the group's deadline, not the caller's five minutes.
void C10dStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) {
  wait(keys);
}

c10::intrusive_ptr<c10d::Store> C10dStore::clone() {
  std::lock_guard lock(mutex_);
  return c10::make_intrusive<C10dStore>(std::shared_ptr<trireme::Store>(open().clone(deadline_)),
                                        deadline_, look_);
}

}  // namespace trireme::detail
