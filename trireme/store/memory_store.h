// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "trireme/base/process/process_mark.h"
#include "trireme/store/key_table.h"
#include "trireme/store/store.h"

namespace trireme {

/// A store inside this process: for ranks that are threads, for a world of one, and for the rank
/// that serves the others (its own calls take no socket). Unlike its base, safe from any thread;
/// clone() shares the table.
class TRIREME_API MemoryStore final : public Store {
 public:
  MemoryStore();
  /// Somebody else's table; `where` is what describe() says.
  MemoryStore(std::shared_ptr<detail::KeyTable> table, std::string where);
  ~MemoryStore() override;

  void set(const std::string& key, std::string_view value) override;
  std::string get(const std::string& key, Deadline deadline) override;
  std::optional<std::string> try_get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t delta) override;
  std::string compare_set(const std::string& key, std::string_view expected,
                          std::string_view desired) override;
  void wait(const std::vector<std::string>& keys, Deadline deadline) override;
  std::vector<std::string> missing(const std::vector<std::string>& keys) override;
  bool delete_key(const std::string& key) override;
  int64_t count_keys(std::string_view prefix) override;
  void set_will(const std::string& key, std::string_view value) override;
  void clear_will() override {}
  std::unique_ptr<Store> clone(Deadline deadline) override;
  std::string describe() const override { return where_; }

 private:
  detail::KeyTable& table() const;

  std::shared_ptr<detail::KeyTable> table_;
  std::string where_;
  ProcessMark made_in_;  // a child has a copy of the table, which nobody else sees
};

}  // namespace trireme
