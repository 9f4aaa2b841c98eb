// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/gloo/backend.h"

#include <algorithm>
#include <cstdlib>

#include "trireme/base/check.h"
#include "trireme/comm/c10d/store.h"
#include "trireme/comm/gloo/gloo_backend.h"
#include "trireme/comm/gloo/interface.h"
#include "trireme/rendezvous/join.h"
#include "trireme/store/store.h"

// How a group is built, and how it ends in order.
namespace trireme::detail {

namespace {
constexpr Duration kConnect = std::chrono::seconds(30);
constexpr const char* kInVain = "in vain";
}  // namespace

GlooBackend::GlooBackend(std::shared_ptr<World> world, std::string group, int rank,
                         std::vector<int> world_ranks, Duration timeout)
    : Backend(rank, static_cast<int>(world_ranks.size()), timeout),
      world_(std::move(world)),
      group_(std::move(group)),
      world_ranks_(std::move(world_ranks)) {
  if (size() > 1)
    world_->watch->join(group_, world_ranks_, [this](const Failure& f) { settle(f); });
}

GlooBackend::~GlooBackend() {
  if (size() == 1) return;
  leave();
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    if (messenger_) messenger_->revoke();
  }
  wake_.notify_all();
  if (carrier_.joinable()) carrier_.join();
}

void GlooBackend::connect(const std::string& host, const std::string& interface, Deadline deadline,
                          const Messenger* parent) {
  if (size() == 1) return;
  const auto connecting = std::make_shared<Connecting>();
  {
    std::lock_guard lock(mutex_);
    connecting_ = connecting;
  }
  const auto start = Clock::now();
  try {
    auto store = std::make_unique<C10dStore>(
        std::make_shared<PrefixStore>(std::shared_ptr<Store>(world_->store->clone(deadline)),
                                      "gloo/" + group_),
        deadline, [this, connecting] {
          check_usable();
          connecting->proceeds();
        });
    const Duration limit = std::min<Duration>(kConnect, deadline.remaining());
    auto made = parent ? std::make_unique<Messenger>(std::move(store), rank(), size(), *parent,
                                                     limit, *connecting)
                       : std::make_unique<Messenger>(std::move(store), rank(), size(), host,
                                                     interface, limit, *connecting);
    std::lock_guard lock(mutex_);
    connecting_.reset();
    messenger_ = std::move(made);
    if (failure_) messenger_->revoke();
  } catch (const PeerLost& error) {
    give_up_connecting(error.what());
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    check_usable();
    world_->watch->say(connecting_board(), kInVain);
    // A connection is refused before the dead rank's will is known.
    if (auto told = world_->watch->cause(group_, -1, kPatience)) fail_now(*told);
    if (const std::vector<int> stuck = not_connecting(); !stuck.empty()) {
      const std::string silence = world_->watch->silence();
      fail_now({Failure::Kind::timeout, world_rank(stuck.front()),
                fmt::format("gloo: rank {} did not connect within {:.3g} s of rank {}. {} ({})",
                            name_ranks(stuck), seconds_since(start), rank(),
                            silence.empty() ? kAdvice : silence, e.what())});
    }
    fail_now({Failure::Kind::lost, world_rank(rank()),
              fmt::format(
                  "gloo: rank {} could not connect to the others of the group within {:.3g} s: {}",
                  rank(), seconds_since(start), e.what())});
  }
  check_usable();
  world_->watch->say(connecting_board(), "connected");
  collectives_.emplace(messenger_.get(), rank(), size());
}

std::vector<int> GlooBackend::not_connecting() {
  for (const Deadline patience = Deadline::after(kPatience);;) {
    const auto said = world_->watch->words(connecting_board(), world_ranks_);
    std::vector<int> silent;
    for (int r = 0; r < size(); ++r)
      if (r != rank() && !said.count(world_rank(r))) silent.push_back(r);
    if (silent.empty() || patience.expired()) return silent;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void GlooBackend::forget_those_in_vain(std::vector<int>& missing) {
  for (const Deadline patience = Deadline::after(kStall / 2);;) {
    const auto said = world_->watch->words(connecting_board(), world_ranks_);
    std::vector<int> rest;
    bool all_spoke = true;
    for (int r : missing) {
      const auto at = said.find(world_rank(r));
      all_spoke = all_spoke && at != said.end();
      if (at == said.end() || at->second != kInVain) rest.push_back(r);
    }
    if (!rest.empty() && rest.size() < missing.size()) missing = rest;
    if (all_spoke || missing.size() < 2 || patience.expired()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void GlooBackend::leave() {
  std::string unfinished;
  {
    std::lock_guard lock(mutex_);
    if (!failure_ && running_)
      unfinished = text_of(*running_);
    else if (!failure_ && !queue_.empty())
      unfinished = text_of(*queue_.front());
  }
  if (!unfinished.empty())
    abort("it left while " + unfinished + ", was under way", AbortKind::other);
  bool in_order;
  {
    std::lock_guard lock(mutex_);
    in_order = !failure_;
  }
  // Messages without a wait may still be needed by other ranks.
  for (const Deadline patience = Deadline::after(kStall); in_order && !patience.expired();) {
    reap();
    if (std::none_of(held_.begin(), held_.end(),
                     [](auto& h) { return h.second->what.op == Collective::send; }))
      break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  world_->watch->leave(group_, in_order);
}

std::shared_ptr<Backend> GlooBackend::subgroup(const std::vector<int>& members,
                                               const std::string& name) {
  check_usable();
  std::vector<int> world_ranks;
  int rank = -1;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i] == this->rank()) rank = static_cast<int>(i);
    world_ranks.push_back(world_rank(members[i]));
  }
  auto made = std::make_shared<GlooBackend>(world_, name, rank, world_ranks, timeout());
  made->connect("", "", Deadline::after(timeout()), messenger_.get());
  return made;
}

std::shared_ptr<Backend> gloo_backend(const BackendSpec& spec) {
  const Deadline deadline = Deadline::after(spec.timeout);
  auto world = make_world(spec, "gloo", deadline);
  std::vector<int> ranks;
  for (int r = 0; r < spec.size; ++r) ranks.push_back(r);
  auto made = std::make_shared<GlooBackend>(world, spec.name, spec.rank, ranks, spec.timeout);
  if (spec.size == 1) return made;
  const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
  std::string host;
  try {
    host = data_address(*world->store, spec.rank, spec.size, spec.store->describe(), deadline,
                        [&] { made->check_usable(); });
  } catch (const PeerLost& error) {
    made->give_up_connecting(error.what());
    throw;
  }
  made->connect(host, interface ? interface : "", deadline, nullptr);
  return made;
}

bool has_gloo() { return true; }

}  // namespace trireme::detail
