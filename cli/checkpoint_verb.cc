// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/checkpoint/flags.h"
#include "cli/checkpoint/output.h"
#include "cli/verbs.h"
#include "trireme/base/check.h"
#include "trireme/base/log.h"

namespace trireme {
namespace {

constexpr int64_t kMany = 1'000'000'000'000;

int fail_with(const std::string& text, int code) {
  log_error("{}", shown(text));
  return code;
}

void add_json(CLI::App* verb, CheckpointFlags* flags) {
  verb->add_option("--json", flags->json,
                   "the same as JSON; without FILE, or with '-', on standard output and alone")
      ->expected(0, 1)
      ->type_name("[FILE]");
}

}  // namespace

int checkpoint_main(int argc, char** argv) {
  CLI::App app("Look at the checkpoints of a run, compare them, and delete old ones.",
               "trireme checkpoint");
  app.require_subcommand(1);
  app.footer(
      "RUN is a run folder; STEP a step folder in it, or a run folder for the step that its "
      "`latest` "
      "names.\n"
      "Examples:\n"
      "  trireme checkpoint ls runs/gpt\n"
      "  trireme checkpoint show runs/gpt --tensors 'model.*' --values\n"
      "  trireme checkpoint verify runs/gpt --all\n"
      "  trireme checkpoint diff runs/a/step-00000100 runs/b/step-00000100\n"
      "  trireme checkpoint prune runs/gpt --keep 3 --dry-run\n"
      "Exit code: 0 fine, 1 something is wrong or differs, 2 usage; of diff: 0 equal, 1 different, "
      "2 any error.");
  CheckpointFlags flags;
  auto* ls = app.add_subcommand("ls", "list the steps: size, ranks, layout, time, good or damaged");
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
  for (auto* verb : {ls, prune}) verb->add_option("RUN", flags.path, "a run folder")->required();
  for (auto* verb : {show, verify})
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
      ->check(CLI::NonNegativeNumber)
      ->type_name("X");
  prune->add_option("--keep", flags.keep, "so many of the newest stay")
      ->check(CLI::Range(int64_t{1}, kMany))
      ->type_name("K");
  prune->add_option("--keep-every", flags.keep_every, "and those whose number is a multiple of N")
      ->check(CLI::Range(int64_t{1}, kMany))
      ->type_name("N");
  prune->add_flag("--dry-run", flags.dry_run, "say what would be deleted, and delete nothing");
  for (auto* verb : {ls, show, verify, diff, prune}) add_json(verb, &flags);
  try {
    const std::vector<std::string> verbs{"ls", "show", "verify", "diff", "prune"};
    const std::string word = argc > 1 ? argv[1] : "-";
    if (!word.starts_with('-') && std::count(verbs.begin(), verbs.end(), word) == 0) {
      const std::string near = did_you_mean(word, verbs);
      fail<UsageError>("trireme checkpoint has no '{}'{}", word,
                       near.empty() ? fmt::format("; it has {}", fmt::join(verbs, ", ")) : near);
    }
    app.parse(argc, argv);
    for (auto* verb : {ls, show, verify, diff, prune})
      if (*verb && verb->get_option("--json")->count() > 0 && flags.json.empty()) flags.json = "-";
    if (*ls) return checkpoint_ls(flags);
    if (*show) return checkpoint_show(flags);
    if (*verify) return checkpoint_verify(flags);
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
