// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cli/checkpoint/flags.h"
#include "cli/checkpoint/output.h"
#include "cli/verbs.h"
#include "trireme/base/check.h"
#include "trireme/base/log.h"
#include "trireme/front/run_folder.h"

namespace trireme {
namespace {

constexpr int64_t kMany = 1'000'000'000'000;

int fail_with(const std::string& text, int code) {
  log_error("{}", shown(text));
  return code;
}

/// The folder to look into: a run's config.json may name another one.
std::string look_where_steps_are(const std::string& path) {
  const std::string steps = steps_named_by(path), recorded = steps_folder_of(path);
  if (steps != path)
    log_info("{} has its steps in {}{}", shown(path), shown(steps),
             has_steps(path) ? ", and older ones of its own" : "");
  else if (recorded != path && !has_steps(path))
    log_info("{} says that it saves in {}, where there is no step", shown(path), shown(recorded));
  return steps;
}

/// What is deleted somebody has named.
void refuse_steps_elsewhere(const std::string& path) {
  const std::string steps = steps_named_by(path);
  check<UsageError>(steps == path || has_steps(path),
                    "the steps of {} are in {}, where another run may save by now: to delete some "
                    "there, name that folder",
                    shown(path), shown(steps));
}

void add_json(CLI::App* verb, CheckpointFlags* flags) {
  verb->add_option("--json", flags->json,
                   "the same as JSON; without FILE, or with '-', on standard output and alone")
      ->expected(0, 1)
      ->type_name("[FILE]");
}

/// Why a text is no tolerance; "": it is one.
std::string no_tolerance(const std::string& text) {
  char* end = nullptr;
  const double x = std::strtod(text.c_str(), &end);
  if (!text.empty() && *end == '\0' && std::isfinite(x) && x >= 0) return "";
  return fmt::format("'{}' is no tolerance: give a finite number that is not negative", text);
}

void add_exchange(CLI::App* exporting, CLI::App* importing, CheckpointFlags* flags) {
  exporting->add_option("OUT", flags->other, "the file or folder to write")->required();
  importing->add_option("SOURCE", flags->path, "a file or folder of weights")->required();
  importing->add_option("RUN", flags->other, "a run folder, which is made")->required();
  exporting
      ->add_option("--format", flags->format,
                   "safetensors (a folder) or torch (a file) [by OUT: torch for .pt, .pth, .bin]")
      ->check(CLI::IsMember({"safetensors", "torch"}));
  exporting
      ->add_option("--max-shard-size", flags->max_shard,
                   "safetensors: a file has no more than that, as in 500MB, 2GiB [5GB]")
      ->type_name("SIZE");
  exporting->add_option("--names", flags->names, "plain (as in the step) or gpt2 [plain]")
      ->check(CLI::IsMember({"plain", "gpt2"}));
  importing
      ->add_option("--names", flags->names,
                   "plain (as in SOURCE), gpt2, or auto: gpt2 where they are its names [auto]")
      ->check(CLI::IsMember({"plain", "gpt2", "auto"}));
  exporting->add_flag("--state", flags->state, "the state of training, too, under its names");
  exporting
      ->add_option("--heads", flags->heads,
                   "of --names gpt2: the attention heads [of config.json beside the step]")
      ->check(CLI::Range(int64_t{1}, kMany))
      ->type_name("N");
  for (auto* verb : {exporting, importing})
    verb->add_option("--map", flags->map,
                     "names that begin with OLD shall begin with NEW; may be given often")
        ->type_name("OLD=NEW")
        ->allow_extra_args(false);
  exporting->add_flag("--force", flags->force, "replace what an export has written there");
  importing->add_flag("--force", flags->force, "also into a folder that has steps");
}

}  // namespace

int checkpoint_main(int argc, char** argv) {
  CLI::App app(
      "Look at the checkpoints of a run, compare them, delete old ones, and exchange weights with "
      "PyTorch for Python.",
      "trireme checkpoint");
  app.require_subcommand(1);
  app.footer(
      "RUN is a run folder; STEP a step folder in it, or a run folder for the step that its "
      "`latest` names. A run whose checkpoint.folder is elsewhere has its steps there.\n"
      "Examples:\n"
      "  trireme checkpoint ls runs/gpt\n"
      "  trireme checkpoint show runs/gpt --tensors 'model.*' --values\n"
      "  trireme checkpoint verify runs/gpt --all\n"
      "  trireme checkpoint diff runs/a/step-00000100 runs/b/step-00000100\n"
      "  trireme checkpoint prune runs/gpt --keep 3 --dry-run\n"
      "  trireme checkpoint export runs/gpt gpt.pt\n"
      "  trireme checkpoint export runs/gpt gpt-hf --names gpt2 --max-shard-size 2GB\n"
      "  trireme checkpoint import downloads/gpt2 runs/gpt2-weights\n"
      "Exit code: 0 fine, 1 something is wrong or differs, 2 usage; of diff: 0 equal, 1 different, "
      "2 any error.");
  CheckpointFlags flags;
  auto* ls = app.add_subcommand(
      "ls", "list the steps: size, ranks, layout, time, good, damaged or unreadable");
  ls->footer("Looks at indexes and at the sizes of files; 'verify' reads every byte.");
  auto* show = app.add_subcommand("show", "say what a step holds: kinds, tensors, files");
  auto* verify = app.add_subcommand("verify", "read every byte against its checksum");
  auto* diff = app.add_subcommand("diff", "compare two steps, whatever ranks saved them");
  diff->footer(
      "Tensors are compared whole, and values too unless --tensors is given; the number of ranks "
      "and the layout are no difference.\n"
      "Exit code: 0 equal, 1 different, 2 any error.");
  auto* prune = app.add_subcommand("prune", "delete old steps, as a run with these keys would");
  prune->footer(
      "The step that `latest` names and later ones stay. Damaged steps are neither counted nor "
      "deleted.");
  auto* exporting = app.add_subcommand("export", "write a step's weights for PyTorch for Python");
  exporting->footer(
      "OUT is a .pt file, which torch.load(weights_only=True) opens, or a folder of safetensors "
      "files as Hugging Face has them. Every checksum is compared, and OUT appears when it is "
      "complete. --names gpt2 gives the names, the layout and the config.json of GPT2LMHeadModel.");
  auto* importing = app.add_subcommand("import", "make a step of weights that others saved");
  importing->footer(
      "SOURCE is a file of torch.save (a state_dict, or a dict with one), a LibTorch archive, a "
      "safetensors file, a folder of those (Hugging Face), or a folder of "
      "torch.distributed.checkpoint. RUN becomes a run folder with step-00000000, whose weights a "
      "run starts with by checkpoint.init=RUN. Nothing in SOURCE is run.");
  for (auto* verb : {ls, prune}) verb->add_option("RUN", flags.path, "a run folder")->required();
  for (auto* verb : {show, verify, exporting})
    verb->add_option("STEP", flags.path, "a step folder, or a run folder for its latest step")
        ->required();
  diff->add_option("A", flags.path, "a step folder, or a run folder for its latest step")
      ->required();
  diff->add_option("B", flags.other, "another")->required();
  for (auto* verb : {show, diff})
    verb->add_option("--tensors", flags.tensors, "only tensors of these names, as in 'model.*'")
        ->type_name("GLOB");
  show->add_flag("--values", flags.values, "the values that are no tensors, too");
  verify->add_flag("--all", flags.all, "every step of the run folder");
  diff->add_option("--atol", flags.tolerance,
                   "numbers are equal that differ by no more than X [0: their bytes are equal]")
      ->check(no_tolerance)
      ->type_name("X");
  prune->add_option("--keep", flags.keep, "so many of the newest stay")
      ->check(CLI::Range(int64_t{1}, kMany))
      ->type_name("K");
  prune->add_option("--keep-best", flags.keep_best, "and so many with the lowest held-out loss")
      ->check(CLI::Range(int64_t{1}, kMany))
      ->type_name("K");
  prune->add_option("--keep-every", flags.keep_every, "and those whose number is a multiple of N")
      ->check(CLI::Range(int64_t{1}, kMany))
      ->type_name("N");
  add_exchange(exporting, importing, &flags);
  prune->add_flag("--dry-run", flags.dry_run, "say what would be deleted, and delete nothing");
  for (auto* verb : {ls, show, verify, diff, prune, exporting, importing}) add_json(verb, &flags);
  try {
    const std::vector<std::string> verbs{"ls",    "show",   "verify", "diff",
                                         "prune", "export", "import"};
    const std::string word = argc > 1 ? argv[1] : "-";
    if (!word.starts_with('-') && std::count(verbs.begin(), verbs.end(), word) == 0) {
      const std::string near = did_you_mean(word, verbs);
      fail<UsageError>("trireme checkpoint has no '{}'{}", word,
                       near.empty() ? fmt::format("; it has {}", fmt::join(verbs, ", ")) : near);
    }
    app.parse(argc, argv);
    for (auto* verb : {ls, show, verify, diff, prune, exporting, importing})
      if (*verb && verb->get_option("--json")->count() > 0 && flags.json.empty()) flags.json = "-";
    flags.named = flags.path;
    if (*prune)
      refuse_steps_elsewhere(flags.path);
    else if (!*importing)
      flags.path = look_where_steps_are(flags.path);
    if (*diff) flags.other = look_where_steps_are(flags.other);
    // Before a step is deleted, written, or read to its end.
    check_json_file(flags.json);
    if (*ls) return checkpoint_ls(flags);
    if (*show) return checkpoint_show(flags);
    if (*verify) return checkpoint_verify(flags);
    if (*exporting) return checkpoint_export(flags);
    if (*importing) return checkpoint_import(flags);
    if (*prune) {
      // Not required(): that is found before a mistyped --keep is.
      check<UsageError>(flags.keep > 0, "--keep K is required: so many steps stay");
      return checkpoint_prune(flags);
    }
    return checkpoint_diff(flags);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    return fail_with(parse_problem(app, error) + "; try trireme checkpoint --help", kExitUsage);
  } catch (const std::exception& error) {
    return fail_with(brief(error), *diff ? kExitUsage : exit_code_for(error));
  }
}

}  // namespace trireme
