// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/neighbours.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/base/process/quiet_thread.h"
#include "trireme/launch/nodes/elastic_keys.h"
#include "trireme/net/connect_and_authenticate.h"
#include "trireme/store/tcp_store.h"

namespace trireme::launch {
namespace {

constexpr Duration kNeighbourAnswers = std::chrono::seconds(1);
constexpr size_t kAskedAtOnce = 16;

}  // namespace

std::map<std::string, SuccessionView::Seen> Neighbours::look(const std::vector<Member>& members) {
  std::vector<SuccessionView::Seen> seen(members.size());
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < std::min(members.size(), kAskedAtOnce); ++t)
    threads.push_back(quiet_thread([&] {
      for (size_t i; (i = next++) < members.size();) seen[i] = look_at(members[i]);
    }));
  for (std::thread& thread : threads) thread.join();
  const Clock::time_point now = Clock::now();
  std::map<std::string, SuccessionView::Seen> all;
  for (size_t i = 0; i < members.size(); ++i) {
    auto& heard = heard_.emplace(members[i].token, now).first->second;
    if (seen[i].sight != Sight::silent) heard = now;
    seen[i].unheard = now - heard;
    all[members[i].token] = std::move(seen[i]);
  }
  return all;
}

SuccessionView::Seen Neighbours::look_at(const Member& member) const {
  SuccessionView::Seen seen;
  if (member.address.empty()) return seen;
  try {
    const net::Endpoint at = net::Endpoint::tcp(net::parse_address(member.address));
    auto entry = detail::connect_and_authenticate(
        at, credentials_, Deadline::after(kNeighbourAnswers), kNeighbourAnswers);
    if (entry.nobody_listens) seen.sight = Sight::refused;
    if (!entry.socket) return seen;
    TcpStore table(std::move(*entry.socket), std::move(entry.session), at, credentials_,
                   kNeighbourAnswers);
    const auto text = table.try_get(elastic::kStanding);
    if (!text) return seen;  // it has hardly come
    seen.standing = read_standing(*text);
    seen.sight = Sight::answers;
  } catch (const std::exception& error) {
    log_debug("{} does not say how it stands: {}", member.host, error.what());
  }
  return seen;
}

void Neighbours::set_standing(const Member& member, const Standing& before, const Standing& after) {
  try {
    if (const auto table = enter(member.address))
      table->compare_set(elastic::kStanding, to_text(before), to_text(after));
  } catch (const std::exception& error) {
    log_debug("{} was not asked to follow: {}", member.host, error.what());
  }
}

std::unique_ptr<Store> Neighbours::enter(const std::string& address) const {
  const net::Endpoint at = net::Endpoint::tcp(net::parse_address(address));
  auto entry = detail::connect_and_authenticate(
      at, credentials_, Deadline::after(kNeighbourAnswers), kNeighbourAnswers);
  if (!entry.socket) return nullptr;
  return std::make_unique<TcpStore>(std::move(*entry.socket), std::move(entry.session), at,
                                    credentials_);
}

Standing standing_in(Store& table) {
  return read_standing(table.try_get(elastic::kStanding).value_or(""));
}

}  // namespace trireme::launch
