// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/over_watch.h"

#include <sys/eventfd.h>

#include "trireme/base/check.h"
#include "trireme/base/process/quiet_thread.h"

namespace trireme::launch {

namespace {
constexpr Duration kLook = std::chrono::milliseconds(100);
}

OverWatch::OverWatch(std::unique_ptr<Store> store, std::string key,
                     std::function<void(Store&)> look,
                     std::function<std::string(const std::string&)> lost)
    : store_(std::move(store)),
      key_(std::move(key)),
      look_(std::move(look)),
      lost_(std::move(lost)),
      event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  check<ResourceError>(static_cast<bool>(event_), "cannot make an event: {}", errno_text());
  thread_ = quiet_thread([this] { watch(); });
}

OverWatch::~OverWatch() {
  stop_ = true;
  thread_.join();
}

std::string OverWatch::value() {
  const std::lock_guard lock(mutex_);
  return value_;
}

void OverWatch::watch() {
  while (!stop_) {
    try {
      if (look_) look_(*store_);
      found(store_->get(key_, Deadline::after(kLook)));
      return;
    } catch (const Timeout&) {  // not yet; a store that does not answer says more at the next call
    } catch (const std::exception& error) {
      found(lost_(error.what()));
      return;
    }
  }
}

void OverWatch::found(const std::string& value) {
  const std::lock_guard lock(mutex_);
  value_ = value;
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(event_.get(), &one, sizeof one);
}

}  // namespace trireme::launch
