// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/setup/model_mesh.h"

#include <fmt/core.h>

#include "trireme/base/error.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/grad/rounds/gradient_checks.h"

namespace trireme {
namespace {

TensorParallel::Options layer_options(const ParallelismSection& parallelism) {
  TensorParallel::Options options;
  options.sequence_parallel = parallelism.sequence_parallel;
  return options;
}

}  // namespace

DeviceMesh mesh_of(const Config& c, const Group& group) {
  const Degrees degrees = c.resolve_degrees(group.size());
  const Sharding sharding = c.resolve_sharding(group.size());
  DeviceMesh mesh(group, parallel_axes({.dp_replicate = sharding.dp_replicate,
                                        .dp_shard = sharding.dp_shard,
                                        .cp = degrees.cp,
                                        .tp = degrees.tp,
                                        .pp = degrees.pp}));
  // All at once, in an order that does not depend on who needs which of them first. None of one
  // rank: it would have memory of its own, and nobody calls it.
  auto all = groups_of_several_axes();
  for (const char* axis : {"pp", "dp_replicate", "dp_shard", "cp", "tp"}) all.push_back({axis});
  for (const auto& axes : all)
    if (mesh.ranks(axes).size() > 1) mesh.group(axes);
  return mesh;
}

void or_all_fail(const DeviceMesh& mesh, const std::function<void()>& make) {
  const auto tell = [&](const std::string& what) {
    mesh.abort(fmt::format("rank {} failed before the first step: {}", mesh.world().rank(), what));
  };
  try {
    make();
  } catch (const Error& e) {
    is_fact_of_the_group(e) ? mesh.abort(e.what()) : tell(e.what());
    throw;
  } catch (const std::exception& e) {
    tell(brief(e));
    throw;
  }
}

TensorParallel tensor_parallel_of(const Config& c, const DeviceMesh& mesh) {
  if (mesh.size("tp") == 1) return TensorParallel::alone();
  return {mesh.group("tp"), layer_options(c.section<ParallelismSection>())};
}

ContextParallel context_parallel_of(const Config& c, const DeviceMesh& mesh) {
  if (mesh.size("cp") == 1) return ContextParallel::alone();
  const auto parallelism = c.section<ParallelismSection>();
  ContextParallel::Options options;
  if (parallelism.cp_method == "all_gather") options.method = ContextMethod::gather;
  if (parallelism.cp_method == "all_to_all") options.method = ContextMethod::all_to_all;
  if (parallelism.cp_balance == "none") options.balance = ContextBalance::none;
  return {mesh.group("cp"), options};
}

TensorParallel imagined_tensor_parallel(const Config& c) {
  const auto parallelism = c.section<ParallelismSection>();
  const int ranks = static_cast<int>(parallelism.tp);
  if (ranks == 1) return TensorParallel::alone();
  return TensorParallel::imagined(ranks - 1, ranks, layer_options(parallelism));
}

}  // namespace trireme
