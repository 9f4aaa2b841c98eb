// SPDX-License-Identifier: Apache-2.0
#include "trireme/train/program/make_trainer.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/config/sections/parallelism.h"
#include "trireme/config/sections/training.h"
#include "trireme/grad/module_sync.h"
#include "trireme/tensor/module_device.h"
#include "trireme/train/build/initial_weights.h"
#include "trireme/train/build/precision_parts.h"
#include "trireme/train/build/run_parts.h"
#include "trireme/train/program/program_keys.h"
#include "trireme/train/program/program_stages.h"
#include "trireme/train/program/term_total.h"
#include "trireme/train/program/updates.h"
#include "trireme/train/setup/run_device.h"

namespace trireme {
namespace {

RunLoss loss_of(Trainer::Impl& trainer, Trainer::Impl::Part& part) {
  return [&trainer, &part](Run& run, const MicroBatch& micro) {
    LossTerms terms;
    const std::vector<at::Tensor> values = part.model->within(*run.compute, [&] {
      terms = part.loss ? part.loss(trainer.net, micro) : trainer.program.loss(trainer.net, micro);
      std::vector<at::Tensor> list;
      for (const auto& [name, value] : terms) list.push_back(value);
      return list;
    });
    return total_of_terms(terms, values, part.factors, part.sums);
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
  parts.make_model = [&trainer, &part, pieces, precision, device, seed](const DeviceMesh&,
                                                                        const UnitMade& made) {
    part.model = std::make_shared<ProgramModel>(trainer.stages ? trainer.stages->here() : pieces,
                                                precision, device.type(), made, seed);
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

std::unique_ptr<Trainer::Impl> make_trainer(Program& program, const Config& config, Group group,
                                            const TrainerStart& start) {
  const Sources sources = program.data(config);
  check_no_built_in_keys(config);
  check_program_keys(config, sources);
  const std::vector<Piece> pieces = program.make(config);
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
    parts.init = start.fresh;
    if (trainer->parts.empty()) parts.data_origin = start.data_origin;
    parts.elsewhere = others(own);
    const Config of_update = config_of_update(config, u.sets);
    for (const char* key : {"parallelism.tp", "parallelism.pp"})
      check<UsageError>(of_update.get_int(key) == config.get_int(key),
                        "Program::updates(): '{}' sets {}, which all updates have in common: set "
                        "it in the configuration",
                        u.name, key);
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
    trainer->fixed =
        std::make_shared<ProgramModel>(rest, precision, device.type(), UnitMade(), seed);
    move_module(*trainer->fixed, device);
    for (auto& p : trainer->fixed->parameters()) p.set_requires_grad(false);
    if (precision.stored != at::kFloat) cast_parameters(*trainer->fixed, precision.stored);
    broadcast_tensors(group, named_parameters(*trainer->fixed));
    broadcast_tensors(group, buffers_of(*trainer->fixed));
    if (start.fresh)
      load_initial_weights(
          config,
          [&](StateVisitor& v) {
            model_state(*trainer->fixed, named_parameters(*trainer->fixed), v);
          },
          group, {}, others(rest));
    place(rest, trainer->fixed.get(), nullptr);
  }
  Network::Impl& network = trainer->network;
  for (const Piece& p : pieces)
    if (network.places.contains(p.path)) network.paths.push_back(p.path);
  network.divided = trainer->stages != nullptr;
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
  parts.data_origin = start.data_origin;
  part->run = build_run(config, std::move(group), parts);
  trainer->parts.push_back(std::move(part));
  return trainer;
}

}  // namespace trireme
