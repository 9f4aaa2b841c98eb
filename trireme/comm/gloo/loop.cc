// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/gloo/loop.h"

#include <dlfcn.h>
#include <gloo/transport/tcp/device.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <typeinfo>
#include <utility>

#include "trireme/base/check.h"

namespace trireme::detail {
namespace {

using Tcp = ::gloo::transport::tcp::Device;
using ::gloo::transport::tcp::Handler;

// Public members of Gloo's Device; looked up, since nothing of ours is linked with Gloo by name and
// a LibTorch with Gloo inside need not show them.
struct Calls {
  void (*add)(Tcp*, int fd, int events, Handler*);
  void (*remove)(Tcp*, int fd, Handler*);
  Calls() {
    const std::string in = "_ZN4gloo9transport3tcp6Device";
    add = reinterpret_cast<decltype(add)>(
        ::dlsym(RTLD_DEFAULT, (in + "18registerDescriptorEiiPNS1_7HandlerE").c_str()));
    remove = reinterpret_cast<decltype(remove)>(
        ::dlsym(RTLD_DEFAULT, (in + "20unregisterDescriptorEiPNS1_7HandlerE").c_str()));
  }
};
const Calls& calls() {
  static const Calls calls;
  return calls;
}

bool is_tcp(const ::gloo::transport::Device& device) {
  const std::string_view name = typeid(device).name();
  return name == "N4gloo9transport3tcp6DeviceE" || name == "N4gloo9transport3tcp3tls6DeviceE";
}

}  // namespace

struct GlooLoop::Bell final : Handler {
  explicit Bell(GlooLoop* loop) : loop(loop) {}
  void handleEvents(int) override { loop->drain(); }
  GlooLoop* const loop;
};

std::shared_ptr<GlooLoop> GlooLoop::of(const std::shared_ptr<::gloo::transport::Device>& device) {
  if (!calls().add || !calls().remove || !is_tcp(*device)) return nullptr;
  return std::shared_ptr<GlooLoop>(new GlooLoop(device));
}

GlooLoop::GlooLoop(std::shared_ptr<::gloo::transport::Device> device)
    : device_(std::move(device)),
      fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      bell_(std::make_unique<Bell>(this)) {
  check<ResourceError>(static_cast<bool>(fd_), "no eventfd: {}", errno_text());
  calls().add(static_cast<Tcp*>(device_.get()), fd_.get(), EPOLLIN, bell_.get());
}

GlooLoop::~GlooLoop() { calls().remove(static_cast<Tcp*>(device_.get()), fd_.get(), bell_.get()); }

void GlooLoop::run(const void* owner, std::function<void()> work) {
  bool first;
  {
    std::lock_guard lock(mutex_);
    first = items_.empty();
    items_.push_back({owner, std::move(work)});
  }
  if (!first) return;  // it has been rung for, or they are being run
  const uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(fd_.get(), &one, sizeof one);
}

void GlooLoop::drain() {
  uint64_t rung;
  [[maybe_unused]] const auto n = ::read(fd_.get(), &rung, sizeof rung);
  std::unique_lock lock(mutex_);
  while (!items_.empty()) {
    Item item = std::move(items_.front());
    items_.pop_front();
    running_ = item.owner;
    lock.unlock();
    item.work();
    item.work = nullptr;  // what it holds ends before anybody hears that it is over
    lock.lock();
    running_ = nullptr;
    idle_.notify_all();
  }
}

void GlooLoop::forget(const void* owner) {
  std::unique_lock lock(mutex_);
  std::erase_if(items_, [&](const Item& item) { return item.owner == owner; });
  idle_.wait(lock, [&] { return running_ != owner; });
}

}  // namespace trireme::detail
