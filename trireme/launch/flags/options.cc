// SPDX-License-Identifier: Apache-2.0
#include "trireme/launch/flags/options.h"

#include <algorithm>

#include "trireme/base/check.h"
#include "trireme/launch/flags/run_flags.h"
#include "trireme/launch/flags/text.h"
#include "trireme/launch/machine/gpu.h"

namespace trireme::launch {
namespace {

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string pet_name(const RunFlag& flag) {
  std::string name = "PET_" + std::string(flag.name);
  for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
  return name;
}

const RunFlag* find_flag(std::string_view name) {
  for (const RunFlag& flag : run_flags())
    if (flag.name == name || flag.alias == name) return &flag;
  return nullptr;
}

const RunFlag* find_short(char name) {
  for (const RunFlag& flag : run_flags())
    if (flag.short_name == name) return &flag;
  return nullptr;
}

[[noreturn]] void fail_unknown(const std::string& word) {
  std::vector<std::string> names;
  for (const RunFlag& flag : run_flags()) names.push_back("--" + std::string(flag.name));
  std::string near = nearest(dashed(word.substr(0, word.find('='))), names);
  fail<UsageError>(
      "unknown flag {}{} Flags of the program go after its name; 'trireme run --help' "
      "lists those of the launcher",
      word, near.empty() ? "." : ": did you mean " + near + "?");
}

class Parser {
 public:
  Parser(const std::vector<std::string>& args, const Getenv& env,
         const std::function<LocalDevices()>& devices)
      : args_(args), env_(env), devices_(devices) {}

  RunOptions run(std::vector<std::string>* rest) {
    while (at_ < args_.size()) {
      const std::string& word = args_[at_];
      bool taken = word == "--" ? false : take_flag(word, rest != nullptr);
      if (taken) continue;
      if (!rest) {
        if (word == "--") ++at_;
        break;
      }
      if (word == "--") break;  // what follows is not for us to read
      rest->push_back(word);
      ++at_;
    }
    auto& tail = rest ? *rest : state_.options.command;
    tail.insert(tail.end(), args_.begin() + static_cast<ptrdiff_t>(at_), args_.end());
    fall_back_to_environment(rest != nullptr);
    state_.env = &env_;
    state_.devices = devices_ ? devices_() : local_devices(env_);
    check<UsageError>(!rest || state_.options.roles.empty(),
                      "--role={}: the ranks of this verb are all alike; 'trireme run' starts "
                      "workers of several roles",
                      roles_text(state_.options.roles));
    finish(state_);
    return std::move(state_.options);
  }

 private:
  // True: the word (and its value) was a flag of ours. False: the first positional.
  bool take_flag(const std::string& word, bool mixed) {
    if (word.size() < 2 || word[0] != '-') return false;
    if (word[1] != '-') return take_short(word, mixed);
    auto equals = word.find('=');
    const RunFlag* flag = find_flag(dashed(word.substr(2, equals - 2)));
    if (!flag || (mixed && !flag->in_mixed)) {
      if (mixed) return false;
      fail_unknown(word);
    }
    ++at_;
    if (equals != std::string::npos) {
      check<UsageError>(flag->takes_value, "--{} takes no value; write it without '{}'", flag->name,
                        word.substr(equals));
      set(*flag, word.substr(equals + 1), "--" + std::string(flag->name));
    } else {
      set(*flag, flag->takes_value ? next_value(*flag) : "1", "--" + std::string(flag->name));
    }
    return true;
  }

  bool take_short(const std::string& word, bool mixed) {
    const RunFlag* flag = find_short(word[1]);
    if (!flag || (mixed && !flag->in_mixed)) {
      if (mixed) return false;
      fail_unknown(word);
    }
    if (!flag->takes_value && word.size() > 2) {
      if (mixed) return false;
      fail_unknown(word);
    }
    ++at_;
    std::string name = word.substr(0, 2);
    if (!flag->takes_value)
      set(*flag, "1", name);
    else if (word.size() > 2)  // -r3 and -r=3
      set(*flag, word.substr(word[2] == '=' ? 3 : 2), name);
    else
      set(*flag, next_value(*flag), name);
    return true;
  }

  std::string next_value(const RunFlag& flag) {
    check<UsageError>(at_ < args_.size(), "--{} needs a value ({})", flag.name, flag.value);
    return args_[at_++];
  }

  void set(const RunFlag& flag, const std::string& value, const std::string& origin) {
    if (std::find(given_.begin(), given_.end(), &flag) == given_.end()) given_.push_back(&flag);
    state_.origin = origin;
    flag.apply(state_, value);
  }

  void fall_back_to_environment(bool mixed) {
    for (const RunFlag& flag : run_flags()) {
      if (std::find(given_.begin(), given_.end(), &flag) != given_.end()) continue;
      if (mixed && !flag.in_mixed) continue;
      for (const std::string& name : variable_names(flag)) {
        auto value = env_(name);
        if (!value || (flag.takes_value && value->empty())) continue;
        if (!flag.takes_value && *value == "0") break;  // asked for the default
        check<UsageError>(flag.takes_value || value->empty() || parse_int(*value).has_value(),
                          "{}={}: a switch takes 1 (or empty) for on, 0 for off", name, *value);
        state_.options.notes.push_back(
            fmt::format("--{}{} from {}", flag.name, flag.takes_value ? "=" + *value : "", name));
        set(flag, flag.takes_value ? *value : "1", name);
        break;
      }
    }
  }

  static std::vector<std::string> variable_names(const RunFlag& flag) {
    std::vector<std::string> names{pet_name(flag)};
    if (flag.name == "nproc-per-node") names.push_back("PET_N_PROC_PER_NODE");
    return names;
  }

  const std::vector<std::string>& args_;
  const Getenv& env_;
  const std::function<LocalDevices()>& devices_;
  size_t at_ = 0;
  ParseState state_;
  std::vector<const RunFlag*> given_;
};

}  // namespace

LocalDevices local_devices(const Getenv& env) {
  LocalDevices devices;
  devices.cpus = static_cast<int>(inherited_affinity().size());
  devices.gpus = static_cast<int>(visible_gpus(env).size());
  return devices;
}

RunOptions parse_run_options(const std::vector<std::string>& args, const Getenv& env,
                             const std::function<LocalDevices()>& devices) {
  return Parser(args, env, devices).run(nullptr);
}

RunOptions extract_run_options(const std::vector<std::string>& args, std::vector<std::string>* rest,
                               const Getenv& env, const std::function<LocalDevices()>& devices) {
  return Parser(args, env, devices).run(rest);
}

void refuse_several_nodes(const RunOptions& options) {
  check<UsageError>(
      options.nodes == 1,
      "--nnodes={}: this verb starts the ranks of one node. 'trireme train' and "
      "'trireme run … PROGRAM' start those of several; mpirun and srun start this one",
      options.nodes);
}

std::vector<std::string> with_run_flags(std::vector<std::string> known) {
  for (const RunFlag& flag : run_flags())
    if (flag.in_mixed && !flag.help.empty()) known.push_back("--" + std::string(flag.name));
  return known;
}

std::string run_flags_help() {
  std::string text;
  for (const RunFlag& flag : run_flags()) {
    if (flag.help.empty()) continue;
    std::string left = flag.short_name ? fmt::format("-{}, ", flag.short_name) : "    ";
    left += "--" + std::string(flag.name);
    if (flag.takes_value) left += " " + std::string(flag.value);
    text += fmt::format("  {:<32}  {}\n", left, flag.help);
  }
  return text;
}

}  // namespace trireme::launch
