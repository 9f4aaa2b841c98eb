// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/check.h"
#include "trireme/config/sections/balance.h"
#include "trireme/config/sections/comm.h"
#include "trireme/config/sections/data_efficiency.h"
#include "trireme/config/sections/precision.h"
#include "trireme/config/sections/training.h"
#include "trireme/grad/module_sync.h"
#include "trireme/train/build/precision_parts.h"
#include "trireme/train/build/run_parts.h"
#include "trireme/train/program/trainer_impl.h"

// A program and a configuration → a trainer.
namespace trireme {
namespace {

/// The program's updates, checked: every name once, every piece known and in at most one.
std::vector<Update> updates_of(Program& program, const Config& config,
                               const std::vector<Piece>& pieces) {
  std::vector<Update> updates = program.updates(config);
  if (updates.empty()) {
    updates.push_back({"all", {}, {}});
    for (const Piece& p : pieces) updates[0].pieces.push_back(p.path);
  }
  std::map<std::string, std::string> taken;
  for (size_t i = 0; i < updates.size(); ++i) {
    const Update& u = updates[i];
    check<UsageError>(!u.name.empty() && !u.pieces.empty(),
                      "Program::updates(): update {} has no {}", i,
                      u.name.empty() ? "name" : "pieces");
    for (size_t j = 0; j < i; ++j)
      check<UsageError>(updates[j].name != u.name, "Program::updates(): two are called '{}'",
                        u.name);
    for (const std::string& path : u.pieces) {
      const bool known =
          std::any_of(pieces.begin(), pieces.end(), [&](const Piece& p) { return p.path == path; });
      check<UsageError>(known,
                        "Program::updates(): '{}' has a piece '{}', which make() did not make",
                        u.name, path);
      const auto [at, is_new] = taken.emplace(path, u.name);
      check<UsageError>(is_new, "Program::updates(): piece '{}' is in '{}' and in '{}'", path,
                        at->second, u.name);
    }
  }
  return updates;
}

Config with_sets(const Config& config, const std::vector<std::string>& sets) {
  if (sets.empty()) return config;
  auto table = std::make_shared<const KeyTable>(config.table());
  // What the update's own choices make meaningless (the betas of another optimizer) is no mistake.
  std::vector<std::string> choices;
  for (const std::string& set : sets)
    for (const KeyInfo& key : table->keys())
      if (("|" + key.when).find("|" + set.substr(0, set.find('=') + 1)) != std::string::npos) {
        choices.push_back(set);
        break;
      }
  const Config chosen = Config::from_text("the program's update", "{}", choices, table);
  nlohmann::json values = nlohmann::json::parse(config.to_json());
  for (const KeyInfo& key : table->keys()) {
    if (key.status != KeyStatus::supported || key.when.empty() || !config.applies(key.path))
      continue;
    const bool concerned = std::any_of(choices.begin(), choices.end(), [&](const std::string& set) {
      return ("|" + key.when).find("|" + set.substr(0, set.find('=') + 1)) != std::string::npos;
    });
    if (!concerned || chosen.applies(key.path)) continue;
    nlohmann::json* here = &values;
    const std::vector<std::string> parts = split_words(key.path, '.');
    for (size_t i = 0; here && i + 1 < parts.size(); ++i)
      here = here->contains(parts[i]) ? &(*here)[parts[i]] : nullptr;
    if (here) here->erase(parts.back());
  }
  return Config::from_text("the program's update", values.dump(), sets, table);
}

/// What follows one optimizer's steps, or keeps one file for them.
void check_keys_of_one_update(const Config& c, const PrecisionPlan& precision, size_t updates) {
  const auto comm = c.section<CommSection>();
  struct Refusal {
    const char* key;
    bool asked;
  };
  for (const Refusal& r :
       std::vector<Refusal>{{"fp16.emulate", precision.emulated()},
                            {"balance.mode", c.section<BalanceSection>().mode != "none"},
                            {"comm.tune_buckets", comm.tune_buckets},
                            {"comm.buckets_file", comm.buckets_file.has_value()}})
    check<UsageError>(
        !r.asked, "{}: {} is for a program with one update, and this one has {}: remove the key",
        c.origin(r.key), r.key, updates);
}

/// The total of a micro-batch's terms, each brought to the micro-batch's own weight.
at::Tensor total_of(Trainer::Impl::Part& part, const LossTerms& terms,
                    const std::vector<at::Tensor>& values) {
  at::Tensor total;
  for (size_t i = 0; i < terms.size(); ++i) {
    const std::string& name = terms[i].first;
    at::Tensor value = values[i];
    check<UsageError>(value.defined() && value.numel() == 1,
                      "Program::loss(): the term '{}' is no scalar: return its sum over the "
                      "micro-batch",
                      name);
    value = value.reshape({}).to(at::kFloat);
    if (!part.factors.empty()) {
      const auto factor = part.factors.find(name);
      check<UsageError>(factor != part.factors.end(),
                        "Program::weights() names no weight for the term '{}'", name);
      if (factor->second != 1) value = value * factor->second;
    }
    if (terms.size() > 1) part.sums[name] += value.item<double>();
    total = total.defined() ? total + value : value;
  }
  check<UsageError>(total.defined(), "Program::loss() returned no term");
  return total;
}

RunLoss loss_of(Trainer::Impl& trainer, Trainer::Impl::Part& part) {
  return [&trainer, &part](Run& run, const MicroBatch& micro) {
    LossTerms terms;
    const std::vector<at::Tensor> values = part.model->within(*run.compute, [&] {
      terms = part.loss ? part.loss(trainer.net, micro) : trainer.program.loss(trainer.net, micro);
      std::vector<at::Tensor> list;
      for (const auto& [name, value] : terms) list.push_back(value);
      return list;
    });
    return total_of(part, terms, values);
  };
}

RunParts parts_of(Trainer::Impl& trainer, Trainer::Impl::Part& part,
                  const std::vector<const Piece*>& pieces, const Sources& sources,
                  const PrecisionPlan& precision, uint64_t seed) {
  RunParts parts;
  parts.open_data = [&sources](Run& run) {
    run.train_data = sources.train;
    run.held_out = sources.held_out;
    run.data_identity = sources.identity;
    run.text = sources.weight_per_sample > 1;
  };
  parts.weight_per_sample = sources.weight_per_sample;
  parts.make_model = [&part, pieces, precision, seed](const UnitMade& made) {
    part.model = std::make_shared<ProgramModel>(pieces, precision, made, seed);
    return part.model;
  };
  parts.loss = loss_of(trainer, part);
  return parts;
}

}  // namespace

void check_no_built_in_keys(const Config& c) {
  // A run's config.json has every value: what says nothing is what equals the default.
  const Config defaults =
      Config::from_text("defaults", "{}", {}, std::make_shared<const KeyTable>(c.table()));
  for (const KeyInfo& key : c.table().keys()) {
    if (key.status != KeyStatus::supported || !key.alias_of.empty()) continue;
    const bool theirs = key.path.starts_with("model.") || key.path.starts_with("generate.") ||
                        (key.path.starts_with("data.") && key.path != "data.workers") ||
                        key.path == "training.activation_memory_mb";
    check<UsageError>(!theirs || c.value_text(key.path) == defaults.value_text(key.path),
                      "{}: {} is about the built-in models, and this program brings its own: "
                      "remove the key",
                      c.origin(key.path), key.path);
  }
}

void check_program_keys(const Config& c, const Sources& sources) {
  const auto training = c.section<TrainingSection>();
  const char* wants_data = "needs training data: return it from Program::data()";
  struct Refusal {
    const char* key;
    bool asked;
    const char* why;
  };
  const bool none = !sources.train;
  for (const Refusal& r : std::vector<Refusal>{
           {"training.epochs", none && training.epochs > 0, wants_data},
           {"training.reproducible", none && training.reproducible,
            "deals leaves of training data to ranks: return it from Program::data()"},
           {"balance.mode", none && c.section<BalanceSection>().mode != "none", wants_data},
           {"data_efficiency.data_sampling.dynamic_batching.enabled",
            none && c.section<DataEfficiencySection>().batching_enabled, wants_data},
           {"training.eval_every", !sources.held_out && training.eval_every > 0,
            "needs held-out data: return it from Program::data()"}})
    check<UsageError>(!r.asked, "{}: {} {}", c.origin(r.key), r.key, r.why);
}

std::unique_ptr<Trainer::Impl> make_trainer(Program& program, const Config& config, Group group) {
  const Sources sources = program.data(config);
  check_no_built_in_keys(config);
  check_program_keys(config, sources);
  const std::vector<Piece> pieces = program.make(config);
  check_pieces(pieces);
  const std::vector<Update> updates = updates_of(program, config, pieces);
  const PrecisionPlan precision = plan_precision(config);
  if (updates.size() > 1) check_keys_of_one_update(config, precision, updates.size());
  const auto seed = static_cast<uint64_t>(config.section<TrainingSection>().seed);
  auto trainer = std::make_unique<Trainer::Impl>(program, config, group);
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
  std::vector<std::string> taken;
  for (const Update& u : updates) {
    auto part = std::make_unique<Trainer::Impl::Part>();
    part->name = u.name;
    const auto own = pieces_of([&](const std::string& path) {
      return std::find(u.pieces.begin(), u.pieces.end(), path) != u.pieces.end();
    });
    taken.insert(taken.end(), u.pieces.begin(), u.pieces.end());
    // One data source for all of them: the first reads.
    part->run = build_run(with_sets(config, u.sets), group,
                          parts_of(*trainer, *part, own, sources, precision, seed));
    place(own, part->model.get(), &part->run);
    trainer->parts.push_back(std::move(part));
  }
  const auto rest = pieces_of([&](const std::string& path) {
    return std::find(taken.begin(), taken.end(), path) == taken.end();
  });
  if (!rest.empty()) {
    trainer->fixed = std::make_shared<ProgramModel>(rest, precision, UnitMade(), seed);
    for (auto& p : trainer->fixed->parameters()) p.set_requires_grad(false);
    if (precision.stored != at::kFloat) cast_parameters(*trainer->fixed, precision.stored);
    broadcast_tensors(group, named_parameters(*trainer->fixed));
    broadcast_tensors(group, buffers_of(*trainer->fixed));
    place(rest, trainer->fixed.get(), nullptr);
  }
  return trainer;
}

std::unique_ptr<Trainer::Impl> make_built_in_trainer(Program& program, const Config& config,
                                                     Group group) {
  auto trainer = std::make_unique<Trainer::Impl>(program, config, group);
  trainer->built_in = true;
  auto part = std::make_unique<Trainer::Impl::Part>();
  part->name = "all";
  part->run = build_run(config, std::move(group));
  trainer->parts.push_back(std::move(part));
  return trainer;
}

}  // namespace trireme
