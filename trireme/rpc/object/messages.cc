// SPDX-License-Identifier: Apache-2.0
#include "trireme/rpc/object/messages.h"

#include "trireme/rpc/wire/messages.h"

namespace trireme::rpc::detail {

void put_reference(encoding::Writer& writer, const PassedReference& passed) {
  writer.put(passed.object);
  writer.put(passed.token);
  writer.put(passed.owner);
  writer.put(passed.where);
}

std::optional<PassedReference> get_reference(encoding::Reader& reader) {
  PassedReference passed;
  reader.get(passed.object);
  if (passed.object == ObjectId()) return {};
  reader.get(passed.token);
  reader.get(passed.owner);
  reader.get(passed.where);
  const ObjectId& object = passed.object;
  if (object.owner <= 0 || object.maker <= 0 || object.number == 0 || passed.owner.empty() ||
      passed.owner.size() > wire::kMaxName || passed.where.size() > kMostWhere)
    encoding::Reader::corrupt("a reference has an owner or a number that there cannot be");
  return passed;
}

}  // namespace trireme::rpc::detail
