// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/nodes/fetch_step.h"

#include <algorithm>
#include <set>
#include <string>

#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/launch/nodes/part_transfer.h"

namespace trireme::launch {
namespace {

/// Fetches what the ranks had, one after the other.
class StepFetcher {
 public:
  StepFetcher(const SpreadStep& step, const std::vector<HostParts>& hosts, size_t here,
              const net::Credentials& credentials, const std::function<bool()>& ends)
      : step_(step), hosts_(hosts), here_(here), credentials_(credentials), ends_(ends) {}

  HandedSnapshot part(size_t rank) {
    // Who has failed before costs seconds again: it is asked last.
    std::vector<size_t> sources = sources_of(step_.ranks[rank], here_);
    std::stable_partition(sources.begin(), sources.end(),
                          [this](size_t host) { return !failed_.contains(host); });
    std::string why;
    for (const size_t from : sources) {
      if (hosts_[from].address.empty()) continue;
      try {
        return {fetch_part(hosts_[from].address, credentials_, step_.save,
                           static_cast<int64_t>(rank), step_.ranks[rank].bytes, ends_),
                static_cast<int>(rank)};
      } catch (const std::exception& error) {
        failed_.insert(from);
        why += fmt::format("{}from node {}: {}", why.empty() ? "" : "; ", from, error.what());
        if (ends_()) break;
      }
    }
    fail<ResourceError>("of step {}, what rank {} had did not come {}", step_.step, rank,
                        why.empty() ? "from anybody" : why);
  }

 private:
  const SpreadStep& step_;
  const std::vector<HostParts>& hosts_;
  const size_t here_;
  const net::Credentials& credentials_;
  const std::function<bool()>& ends_;
  std::set<size_t> failed_;
};

}  // namespace

std::vector<HandedSnapshot> fetch_step(const SpreadStep& step, const std::vector<HostParts>& hosts,
                                       size_t here, const net::Credentials& credentials,
                                       const std::function<bool()>& ends) {
  StepFetcher fetcher(step, hosts, here, credentials, ends);
  std::vector<HandedSnapshot> fetched;
  for (size_t rank = 0; rank < step.ranks.size(); ++rank) {
    const std::vector<size_t>& at = step.ranks[rank].hosts;
    if (!std::binary_search(at.begin(), at.end(), here)) fetched.push_back(fetcher.part(rank));
  }
  return fetched;
}

}  // namespace trireme::launch
