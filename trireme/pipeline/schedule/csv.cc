// SPDX-License-Identifier: Apache-2.0
#include "trireme/pipeline/schedule/csv.h"

#include <algorithm>

#include "trireme/base/check.h"

namespace trireme::pipeline {
namespace {

constexpr size_t kMostDigits = 6;

constexpr ActionKind kActionKinds[] = {
    ActionKind::forward,       ActionKind::input_gradient,  ActionKind::weight_gradient,
    ActionKind::backward,      ActionKind::send_forward,    ActionKind::recv_forward,
    ActionKind::send_backward, ActionKind::recv_backward,   ActionKind::unshard,
    ActionKind::reshard,       ActionKind::reduce_gradients};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

// What an error shows of a cell: short, and in characters that a terminal may get.
std::string shown(std::string_view cell) {
  constexpr size_t kMost = 40;
  std::string text;
  for (const char c : cell.substr(0, kMost)) text += c >= ' ' && c <= '~' ? c : '?';
  return cell.size() > kMost ? text + "..." : text;
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  std::vector<std::vector<Action>> rows() {
    std::vector<std::vector<Action>> rows;
    while (!text_.empty() && (text_.back() == '\n' || text_.back() == '\r')) text_.remove_suffix(1);
    check<UsageError>(!trimmed(text_).empty(), "{} is empty: a table has one line for each rank",
                      file_);
    for (size_t begin = 0; begin <= text_.size();) {
      const size_t end = std::min(text_.find('\n', begin), text_.size());
      check<UsageError>(rows.size() < static_cast<size_t>(kMostRanks),
                        "{} has more than {} lines, one for each rank", file_, kMostRanks);
      ++row_;
      rows.push_back(row(text_.substr(begin, end - begin)));
      begin = end + 1;
    }
    return rows;
  }

 private:
  std::vector<Action> row(std::string_view line) {
    std::vector<Action> actions;
    column_ = 0;
    for (size_t begin = 0; begin <= line.size();) {
      const size_t end = std::min(line.find(',', begin), line.size());
      ++column_;
      std::string_view cell = trimmed(line.substr(begin, end - begin));
      // csv writers may quote a cell.
      if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"')
        cell = trimmed(cell.substr(1, cell.size() - 2));
      if (!cell.empty()) add(cell, actions);
      begin = end + 1;
    }
    return actions;
  }

  void add(std::string_view cell, std::vector<Action>& actions) {
    if (cell.front() != '(') return actions.push_back(single(cell, cell));
    const size_t close = cell.find(')');
    const size_t middle = cell.find(';');
    if (close == std::string_view::npos || middle == std::string_view::npos || middle > close ||
        cell.substr(close + 1) != "OVERLAP_F_B")
      refuse(cell, "an overlapped pair is written (0F1;3B2)OVERLAP_F_B");
    Action first = single(trimmed(cell.substr(1, middle - 1)), cell);
    const Action second = single(trimmed(cell.substr(middle + 1, close - middle - 1)), cell);
    const auto forward = [](const Action& a) { return a.kind == ActionKind::forward; };
    const auto backward = [](const Action& a) { return gives_input_gradient(a.kind); };
    if (!(forward(first) && backward(second)) && !(backward(first) && forward(second)))
      refuse(cell, "an overlapped pair is one forward F and one backward B or I");
    first.overlaps_next = true;
    actions.push_back(first);
    actions.push_back(second);
  }

  Action single(std::string_view text, std::string_view cell) {
    std::string_view rest = text;
    Action action;
    action.stage = number(rest, cell, "begins with the number of a stage, as in 0F1");
    size_t end = 0;
    while (end < rest.size() && !is_digit(rest[end])) ++end;
    const std::string_view word = rest.substr(0, end);
    const auto* kind = std::find_if(std::begin(kActionKinds), std::end(kActionKinds),
                                    [&](ActionKind k) { return word == word_of(k); });
    if (kind == std::end(kActionKinds))
      refuse(cell,
             "the kind is one of F, I, W, B, SEND_F, RECV_F, SEND_B, RECV_B, UNSHARD, "
             "RESHARD, REDUCE_GRAD");
    action.kind = *kind;
    rest.remove_prefix(end);
    if (is_gather_or_drop(action.kind)) {
      if (!rest.empty()) refuse(cell, "what concerns a whole stage has no micro-batch");
    } else if (!is_of_unit(action.kind) || !rest.empty()) {  // REDUCE_GRAD is of either
      action.micro_batch = number(rest, cell, "ends with the number of a micro-batch, as in 0F1");
    }
    if (!rest.empty()) refuse(cell, "nothing may follow the number of the micro-batch");
    if (action.stage >= kMostStages)
      refuse(cell, fmt::format("stages are numbered from 0 to {}", kMostStages - 1));
    if (action.micro_batch >= kMostMicroBatches)
      refuse(cell, fmt::format("micro-batches are numbered from 0 to {}", kMostMicroBatches - 1));
    return action;
  }

  int number(std::string_view& rest, std::string_view cell, const std::string& rule) {
    size_t digits = 0;
    while (digits < rest.size() && is_digit(rest[digits])) ++digits;
    if (digits == 0 || digits > kMostDigits) refuse(cell, "a cell " + rule);
    int value = 0;
    for (const char c : rest.substr(0, digits)) value = value * 10 + (c - '0');
    rest.remove_prefix(digits);
    return value;
  }

  [[noreturn]] void refuse(std::string_view cell, const std::string& rule) const {
    fail<UsageError>("{}: row {}, column {}: '{}' is no action: {}", file_, row_, column_,
                     shown(cell), rule);
  }

  std::string_view text_;
  const std::string& file_;
  int row_ = 0, column_ = 0;
};

}  // namespace

Schedule read_table(std::string_view text, const std::string& file) {
  Schedule schedule = schedule_of_rows(file, Reader(text, file).rows());
  const long cells = static_cast<long>(schedule.stages()) * schedule.micro_batches;
  check<UsageError>(cells <= kMostCells,
                    "{} speaks of {} stages and {} micro-batches: together more than the {} that a "
                    "table may have",
                    file, schedule.stages(), schedule.micro_batches, kMostCells);
  return schedule;
}

std::string write_table(const Schedule& schedule) {
  std::string out;
  for (const auto& list : schedule.actions) {
    for (size_t at = 0; at < list.size(); ++at) {
      if (at > 0) out += ',';
      const bool pair = list[at].overlaps_next && at + 1 < list.size();
      out += pair ? "(" + text_of(list[at]) + ";" + text_of(list[at + 1]) + ")OVERLAP_F_B"
                  : text_of(list[at]);
      if (pair) ++at;
    }
    out += '\n';
  }
  return out;
}

}  // namespace trireme::pipeline
