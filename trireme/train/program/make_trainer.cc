// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/program/make_trainer.h"

#include <algorithm>
#include <utility>

#include "trireme/base/check.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/config/sections/training.h"
#include "trireme/grad/module_sync.h"
#include "trireme/tensor/module_device.h"
#include "trireme/train/build/initial_weights.h"
#include "trireme/train/build/precision_parts.h"
#include "trireme/train/build/run_parts.h"
#include "trireme/train/model_axes/begin_alike.h"
#include "trireme/train/program/loss_rehearsal.h"
#include "trireme/train/program/program_keys.h"
#include "trireme/train/program/program_stages.h"
#include "trireme/train/program/term_total.h"
#include "trireme/train/program/updates.h"
#include "trireme/train/setup/model_mesh.h"
#include "trireme/train/setup/run_device.h"

namespace trireme {
namespace {

RunLoss loss_of(Trainer::Impl& trainer, Trainer::Impl::Part& part) {
  return [&trainer, &part](Run& run, const MicroBatch& micro) {
    if (run.mesh.size("tp") > 1 && !std::exchange(part.inputs_compared, true)) {
      std::vector<at::Tensor> inputs{micro.input, micro.target};
      for (const auto& [name, t] : micro.more) inputs.push_back(t);
      check_same_inputs(inputs, "update '" + part.name + "'", run.mesh.group("tp"));
    }
    LossTerms terms;
    const std::vector<at::Tensor> values = part.model->within(*run.compute, [&] {
      terms = part.loss ? part.loss(trainer.net, micro) : trainer.program.loss(trainer.net, micro);
      std::vector<at::Tensor> list;
      for (const auto& [name, value] : terms) list.push_back(micro.weight > 0 ? value : value * 0);
      return list;
    });
    return total_of_terms(terms, values, part.factors, part.sums);
  };
}

// Ranks that hold parts of a piece begin alike before ZeRO shards it.
UnitMade begun_alike(const DeviceMesh& mesh, const UnitMade& made) {
  if (mesh.size("tp") == 1)
    return [made](int64_t unit, const std::string& path, torch::nn::Module& module) {
      check_undivided(module, "piece '" + path + "'");
      if (made) made(unit, path, module);
    };
  return [tp = mesh.group("tp"), made](int64_t unit, const std::string& path,
                                       torch::nn::Module& module) {
    begin_alike(module, "piece '" + path + "'", tp);
    if (made) made(unit, path, module);
  };
}

RunParts parts_of(Trainer::Impl& trainer, Trainer::Impl::Part& part,
                  const std::vector<const Piece*>& pieces, const Sources& sources,
                  const PrecisionPlan& precision, at::Device device, uint64_t seed) {
  RunParts parts;
  parts.open_data = [&sources](Run& run) {
    run.train_data = sources.train;
    run.held_out = sources.held_out;
    run.data_identity = sources.identity;
    run.text = sources.weight_per_sample > 1;
  };
  parts.weight_per_sample = sources.weight_per_sample;
  parts.make_model = [&trainer, &part, pieces, precision, device, seed](const DeviceMesh& mesh,
                                                                        const UnitMade& made) {
    part.model =
        std::make_shared<ProgramModel>(trainer.stages ? trainer.stages->here() : pieces, precision,
                                       device.type(), begun_alike(mesh, made), seed);
    if (trainer.stages) trainer.stages->check_trained(*part.model);
    return part.model;
  };
  parts.loss = loss_of(trainer, part);
  if (!trainer.stages) return parts;
  parts.stages = [&trainer, &sources, precision, device](const DeviceMesh& mesh) {
    trainer.stages->divide(mesh, precision, device, sources.train.get());
    return trainer.stages->model_stages();
  };
  parts.computation = [&trainer, &part](const Run& run) {
    return compute_through_stages(run.mesh, trainer.stages->plan(), run.device,
                                  trainer.stages->functions(part));
  };
  parts.about_stages = [&trainer] { return trainer.stages->describe(); };
  return parts;
}

}  // namespace

namespace {

// Of all pieces, on all ranks, something is divided.
void check_divided(const Trainer::Impl& trainer, const Config& config) {
  ParameterLayouts all = trainer.fixed_layouts;
  for (const auto& part : trainer.parts)
    for (const auto& [name, layout] : part->run.layouts)
      all.emplace(part->name + "/" + name, layout);
  check_some_divided(trainer.parts.front()->run.mesh, all, config);
}

std::unique_ptr<Trainer::Impl> make_on(const DeviceMesh& mesh, Program& program,
                                       const Config& config, Group group,
                                       const TrainerStart& start) {
  const Sources sources = program.data(config);
  check_no_built_in_keys(config);
  check_program_keys(config, sources);
  const std::vector<Piece> pieces =
      mesh ? program.make_divided(config, tensor_parallel_of(config, mesh)) : program.make(config);
  check_pieces(pieces);
  const std::vector<Update> updates = updates_of(program, config, pieces);
  const PrecisionPlan precision = plan_precision(config);
  const at::Device device = run_device(config, group);
  if (updates.size() > 1) check_keys_of_one_update(config, precision, updates.size());
  const auto seed = static_cast<uint64_t>(config.section<TrainingSection>().seed);
  auto trainer = std::make_unique<Trainer::Impl>(program, config, group);
  const std::string fault = fault_of_axes(program, config, pieces, group.size());
  check<UsageError>(fault.empty(), "{}", fault);
  if (config.section<ParallelismSection>().pp > 1)
    trainer->stages = std::make_shared<ProgramStages>(*trainer, pieces);
  auto place = [&](const std::vector<const Piece*>& list, ProgramModel* model, Run* run) {
    for (size_t i = 0; i < list.size(); ++i)
      trainer->network.places[list[i]->path] = {model, i, run};
  };
  auto pieces_of = [&](auto&& wanted) {
    std::vector<const Piece*> list;
    for (const Piece& p : pieces)
      if (wanted(p.path)) list.push_back(&p);
    return list;
  };
  // Patterns of the parameters of all other pieces.
  auto others = [&](const std::vector<const Piece*>& list) {
    std::vector<std::string> patterns;
    for (const Piece& p : pieces)
      if (std::find(list.begin(), list.end(), &p) == list.end()) patterns.push_back(p.path + ".*");
    return patterns;
  };
  std::vector<std::string> taken;
  for (const Update& u : updates) {
    auto part = std::make_unique<Trainer::Impl::Part>();
    part->name = u.name;
    const auto own = pieces_of([&](const std::string& path) {
      return std::find(u.pieces.begin(), u.pieces.end(), path) != u.pieces.end();
    });
    taken.insert(taken.end(), u.pieces.begin(), u.pieces.end());
    // All updates share one data source, which the first reads.
    RunParts parts = parts_of(*trainer, *part, own, sources, precision, device, seed);
    parts.mesh = mesh;
    parts.init = start.fresh;
    parts.batches = start.batches, parts.lr_factor = start.lr_factor;
    if (trainer->parts.empty()) parts.data_origin = start.data_origin;
    parts.elsewhere = others(own);
    const Config of_update = config_of_update(config, u.sets);
    for (const char* key : {"parallelism.tp", "parallelism.pp"})
      check<UsageError>(of_update.get_int(key) == config.get_int(key),
                        "Program::updates(): '{}' sets {}, which all updates have in common: set "
                        "it in the configuration",
                        u.name, key);
    const Sharding of_all = config.resolve_sharding(group.size()),
                   own_sharding = of_update.resolve_sharding(group.size());
    check<UsageError>(
        !mesh || (own_sharding.dp_shard == of_all.dp_shard &&
                  own_sharding.dp_replicate == of_all.dp_replicate),
        "Program::updates(): '{}' shards over {} ranks and the configuration over {}: "
        "with parallelism.tp all updates have their ranks in common. Set the ZeRO "
        "stage and parallelism.dp_shard in the configuration",
        u.name, own_sharding.dp_shard, of_all.dp_shard);
    part->run = build_run(of_update, group, parts);
    check<UsageError>(part->run.device == device,
                      "Program::updates(): '{}' sets device, which all updates have in common: set "
                      "it in the configuration",
                      u.name);
    place(trainer->stages ? trainer->stages->here() : own, part->model.get(), &part->run);
    trainer->parts.push_back(std::move(part));
  }
  const auto rest = pieces_of([&](const std::string& path) {
    return std::find(taken.begin(), taken.end(), path) == taken.end();
  });
  if (!rest.empty()) {
    trainer->fixed = std::make_shared<ProgramModel>(
        rest, precision, device.type(), begun_alike(trainer->first().mesh, UnitMade()), seed);
    if (mesh) trainer->fixed_layouts = layouts_of(*trainer->fixed);
    move_module(*trainer->fixed, device);
    for (auto& p : trainer->fixed->parameters()) p.set_requires_grad(false);
    if (precision.stored != at::kFloat) cast_parameters(*trainer->fixed, precision.stored);
    Group dp = trainer->first().data_parallel();
    broadcast_tensors(dp, named_parameters(*trainer->fixed));
    broadcast_tensors(dp, buffers_of(*trainer->fixed));
    if (start.fresh)
      load_initial_weights(
          config, [&](StateVisitor& v) { trainer->fixed_state(v); }, group, {}, others(rest));
    place(rest, trainer->fixed.get(), nullptr);
  }
  if (mesh) check_divided(*trainer, config);
  Network::Impl& network = trainer->network;
  for (const Piece& p : pieces)
    if (network.places.contains(p.path)) network.paths.push_back(p.path);
  network.divided = trainer->stages != nullptr;
  rehearse_loss(*trainer);
  return trainer;
}

}  // namespace

std::unique_ptr<Trainer::Impl> make_trainer(Program& program, const Config& config, Group group,
                                            const TrainerStart& start) {
  if (config.section<ParallelismSection>().tp == 1)
    return make_on({}, program, config, std::move(group), start);
  // Layers are made with the group of their axis. The updates of a program have it in common.
  const CurrentDevice current(run_device(config, group));
  const DeviceMesh mesh = mesh_of(config, group);
  std::unique_ptr<Trainer::Impl> trainer;
  or_all_fail(mesh, [&] { trainer = make_on(mesh, program, config, group, start); });
  return trainer;
}

std::unique_ptr<Trainer::Impl> make_built_in_trainer(Program& program, const Config& config,
                                                     Group group, const TrainerStart& start) {
  auto trainer = std::make_unique<Trainer::Impl>(program, config, group);
  trainer->built_in = true;
  auto part = std::make_unique<Trainer::Impl::Part>();
  part->name = "all";
  RunParts parts = built_in_parts(config);
  parts.init = start.fresh;
  parts.batches = start.batches, parts.lr_factor = start.lr_factor;
  parts.data_origin = start.data_origin;
  part->run = build_run(config, std::move(group), parts);
  trainer->parts.push_back(std::move(part));
  return trainer;
}

}  // namespace trireme
