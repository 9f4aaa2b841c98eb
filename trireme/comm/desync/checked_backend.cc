// SPDX-License-Identifier: Apache-2.0
#include "trireme/comm/desync/checked_backend.h"

#include <numeric>

#include "trireme/base/check.h"
#include "trireme/comm/desync/check_each.h"
#include "trireme/comm/desync/check_hash.h"

namespace trireme::detail {

std::shared_ptr<Backend> checked_backend(std::shared_ptr<Backend> inner, const std::string& word,
                                         const std::string& group,
                                         std::unique_ptr<WaitBoard> board) {
  if (word == "off") return inner;
  check<UsageError>(word == "each" || word == "hash", "check is '{}'; use each, hash or off", word);
  std::vector<int> ranks(static_cast<size_t>(inner->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (word == "each")
    return check_each(std::move(inner), group,
                      board ? std::make_shared<WaitWatch>(std::move(board)) : nullptr,
                      std::move(ranks));
  return check_hash(std::move(inner), group,
                    board ? std::make_shared<StallWatch>(std::move(board)) : nullptr,
                    std::move(ranks));
}

}  // namespace trireme::detail
