// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/gloo/loop.h"

#include <dlfcn.h>
#include <gloo/transport/tcp/device.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
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

// Public members of Gloo's Device. They are looked up at run time, because our code does not link
// Gloo by name and a LibTorch that contains Gloo need not export them.
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

// Called by Gloo with an event; since 2025 its loop is an argument.
template <class Method>
struct GlooHandler;
template <class... Arguments>
struct GlooHandler<void (Handler::*)(Arguments...)> : Handler {
  virtual void ring() = 0;
  void handleEvents(Arguments...) final { ring(); }
};

struct GlooLoop::Bell final : GlooHandler<decltype(&Handler::handleEvents)> {
  Bell(GlooLoop* loop, int fd) : loop(loop), fd(fd) {}
  void ring() override {
    uint64_t rung;
    if (::read(fd, &rung, sizeof rung) == sizeof rung) loop->drain();
  }
  GlooLoop* const loop;
  const int fd;
};

std::shared_ptr<GlooLoop> GlooLoop::of(const std::shared_ptr<::gloo::transport::Device>& device) {
  if (!calls().add || !calls().remove || !is_tcp(*device)) return nullptr;
  return std::shared_ptr<GlooLoop>(new GlooLoop(device));
}

GlooLoop::GlooLoop(std::shared_ptr<::gloo::transport::Device> device)
    : device_(std::move(device)),
      bell_fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      timer_fd_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)),
      bell_(std::make_unique<Bell>(this, bell_fd_.get())),
      timer_(std::make_unique<Bell>(this, timer_fd_.get())) {
  check<ResourceError>(bell_fd_ && timer_fd_,
                       "gloo: cannot create a descriptor to wake its thread: {}", errno_text());
  auto* const tcp = static_cast<Tcp*>(device_.get());
  calls().add(tcp, bell_fd_.get(), EPOLLIN, bell_.get());
  calls().add(tcp, timer_fd_.get(), EPOLLIN, timer_.get());
}

GlooLoop::~GlooLoop() {
  auto* const tcp = static_cast<Tcp*>(device_.get());
  calls().remove(tcp, bell_fd_.get(), bell_.get());
  calls().remove(tcp, timer_fd_.get(), timer_.get());
}

void GlooLoop::run(const void* owner, std::function<void()> work) {
  bool first;
  {
    std::lock_guard lock(mutex_);
    first = items_.empty();
    items_.push_back({owner, std::move(work)});
  }
  if (!first) return;  // already signalled, or running
  const uint64_t one = 1;
  [[maybe_unused]] const auto n = ::write(bell_fd_.get(), &one, sizeof one);
}

void GlooLoop::run_at(Clock::time_point when, const void* owner, std::function<void()> work) {
  std::lock_guard lock(mutex_);
  const auto at = later_.insert({when, {owner, std::move(work)}});
  if (at == later_.begin()) set_timer();
}

// Sets the timer to the earliest of the timed items.
void GlooLoop::set_timer() {
  // Zero would stop it.
  const auto left =
      std::max<Duration>(later_.begin()->first - Clock::now(), std::chrono::nanoseconds(1));
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  itimerspec spec{};
  spec.it_value = {ns / 1000000000, ns % 1000000000};
  ::timerfd_settime(timer_fd_.get(), 0, &spec, nullptr);
}

void GlooLoop::drain() {
  std::unique_lock lock(mutex_);
  for (const auto now = Clock::now(); !later_.empty() && later_.begin()->first <= now;) {
    items_.push_back(std::move(later_.begin()->second));
    later_.erase(later_.begin());
    if (!later_.empty()) set_timer();
  }
  while (!items_.empty()) {
    Item item = std::move(items_.front());
    items_.pop_front();
    running_ = item.owner;
    lock.unlock();
    item.work();
    item.work = nullptr;  // what it holds is destroyed before its end is visible
    lock.lock();
    running_ = nullptr;
    idle_.notify_all();
  }
}

void GlooLoop::forget(const void* owner) {
  std::unique_lock lock(mutex_);
  std::erase_if(items_, [&](const Item& item) { return item.owner == owner; });
  std::erase_if(later_, [&](const auto& later) { return later.second.owner == owner; });
  idle_.wait(lock, [&] { return running_ != owner; });
}

}  // namespace trireme::detail
