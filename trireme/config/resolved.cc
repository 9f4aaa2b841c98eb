// SPDX-License-Identifier: Apache-2.0
#include "trireme/config/resolved.h"

#include <memory>
#include <utility>
#include <vector>

#include "trireme/base/check.h"
#include "trireme/config/config_loader.h"

namespace trireme {

Config load_resolved(std::string_view text, std::shared_ptr<const KeyTable> table) {
  Value root = read_json("the resolved configuration", text);
  const Value none, *origins = root.find("_origins");
  const std::vector<Value::Member> all = (origins ? origins : &none)->members;
  for (const auto& [path, key_origin, origin] : all) {
    Value* here = &root;
    for (const auto& part : split_words(path, '.'))
      here = here ? const_cast<Value*>(here->find(part)) : nullptr;
    if (here) set_origin(here, {std::make_shared<const std::string>(origin.string), 0, 0});
  }
  ConfigLoader loader(std::move(table));
  loader.add_document(root);
  Inspection inspection = loader.finish();
  for (const auto& key : inspection.keys) check<UsageError>(key.error.empty(), "{}", key.error);
  return std::move(inspection.config);
}

}  // namespace trireme
