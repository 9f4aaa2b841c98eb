// SPDX-License-Identifier: Apache-2.0
#include "trireme/rendezvous/facts/facts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace trireme {
namespace {

constexpr size_t kMostColumns = 6;
constexpr size_t kMostHostsNamed = 2;
constexpr size_t kWidest = 60;  // of a cell: what a host says of itself may be anything
const char* const kAbsent = "-";

std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  if (text.size() > kWidest) text = text.substr(0, kWidest - 3) + "...";
  return text;
}

/// A row of the table: for each of the ranks, which of the different values it has.
struct Row {
  std::string name;
  bool must_agree = false;
  std::vector<int> kind;             // by entry
  std::vector<std::string> of_kind;  // the value of each
  bool differs() const { return of_kind.size() > 1; }
};

const Fact* find(const RankFacts& of, const std::string& name) {
  for (const Fact& fact : of.facts)
    if (fact.name == name) return &fact;
  return nullptr;
}

/// Numbers that are near to each other are of one kind, which its least stands for.
std::map<double, size_t> kinds_of_numbers(const std::set<double>& numbers, double within,
                                          size_t first) {
  std::map<double, size_t> kinds;
  double least = 0;
  for (const double number : numbers) {
    if (kinds.empty() || number > within * least) {
      if (!kinds.empty()) ++first;
      least = number;
    }
    kinds[number] = first;
  }
  return kinds;
}

Row row_of(const std::vector<RankFacts>& all, const std::string& name) {
  Row row;
  row.name = name;
  std::map<std::string, int> seen;
  std::set<double> numbers;
  double within = 0;
  for (const RankFacts& one : all)
    if (const Fact* fact = find(one, name)) {
      row.must_agree |= fact->must_agree;
      within = std::max(within, fact->within);
      if (fact->within > 1) numbers.insert(fact->number);
    }
  const auto near = kinds_of_numbers(numbers, within, 0);
  for (const RankFacts& one : all) {
    const Fact* fact = find(one, name);
    const std::string value = fact ? printable(fact->value) : kAbsent;
    const std::string key =
        fact && fact->within > 1 ? fmt::format("\x01{}", near.at(fact->number)) : value;
    const auto [it, fresh] = seen.try_emplace(key, static_cast<int>(row.of_kind.size()));
    if (fresh) row.of_kind.push_back(value);
    row.kind.push_back(it->second);
  }
  return row;
}

std::string ranks_text(int first, int count) {
  if (count == 1) return fmt::format("rank {}", first);
  return fmt::format("ranks {}-{}", first, first + count - 1);
}

bool one_host(const std::vector<RankFacts>& all) {
  return std::all_of(all.begin(), all.end(),
                     [&](const RankFacts& one) { return one.host == all[0].host; });
}

/// "host0 (ranks 0-7)", "host0 and 98 more hosts (792 ranks)"; on one host "ranks 0-2".
std::string column_text(const std::vector<const RankFacts*>& members, bool with_host) {
  struct Part {
    std::string host;
    int first, count;
  };
  std::vector<Part> parts;
  std::set<std::string> hosts;
  int ranks = 0;
  for (const RankFacts* one : members) {
    hosts.insert(one->host);
    ranks += one->ranks;
    if (!parts.empty() && parts.back().host == one->host &&
        parts.back().first + parts.back().count == one->first_rank)
      parts.back().count += one->ranks;
    else
      parts.push_back({one->host, one->first_rank, one->ranks});
  }
  if (parts.size() > kMostHostsNamed)
    return with_host && hosts.size() > 1
               ? fmt::format("{} and {} more host{} ({} ranks)", printable(parts[0].host),
                             hosts.size() - 1, hosts.size() == 2 ? "" : "s", ranks)
               : fmt::format("rank {} and {} more", parts[0].first, ranks - 1);
  std::string text;
  for (const Part& part : parts) {
    const std::string of = ranks_text(part.first, part.count);
    text += (text.empty() ? "" : ", ") +
            (with_host ? fmt::format("{} ({})", printable(part.host), of) : of);
  }
  return text;
}

/// Characters, not bytes, of what may be UTF-8.
size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::vector<std::string> lay_out(const std::vector<std::vector<std::string>>& cells) {
  std::vector<size_t> widths(cells[0].size());
  for (const auto& row : cells)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::vector<std::string> lines;
  for (const auto& row : cells) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += (i ? " | " : "") + row[i];
      if (i + 1 < row.size()) line.append(widths[i] - width_of(row[i]), ' ');
    }
    lines.push_back(line);
  }
  return lines;
}

std::string refusal_of(const Row& row, const std::vector<RankFacts>& all) {
  const size_t other = static_cast<size_t>(
      std::find_if(row.kind.begin(), row.kind.end(), [&](int k) { return k != row.kind[0]; }) -
      row.kind.begin());
  const bool with_host = !one_host(all);
  const auto who = [&](const RankFacts& one) {
    const std::string ranks = ranks_text(one.first_rank, one.ranks);
    return with_host ? fmt::format("{} on {}", ranks, printable(one.host)) : ranks;
  };
  return fmt::format(
      "{} {} another {} than {} ({}; there {}): give every rank the same build, files and flags",
      who(all[other]), all[other].ranks == 1 ? "has" : "have", row.name, who(all[0]),
      row.of_kind[static_cast<size_t>(row.kind[other])],
      row.of_kind[static_cast<size_t>(row.kind[0])]);
}

/// Of the first rank's clock against each: what is certain of the difference, if that is much.
Row row_of_clocks(const std::vector<RankFacts>& all) {
  Row row;
  row.name = "clock";
  std::map<std::string, int> seen;
  for (const RankFacts& one : all) {
    const ClockOffset offset = clock_offset(all[0], one);
    std::string value = "0";
    if (offset.least > kClocksDifferBy)
      value = fmt::format("ahead by {:.1f} s", offset.least);
    else if (offset.most < -kClocksDifferBy)
      value = fmt::format("behind by {:.1f} s", -offset.most);
    const auto [it, fresh] = seen.try_emplace(value, static_cast<int>(row.of_kind.size()));
    if (fresh) row.of_kind.push_back(value);
    row.kind.push_back(it->second);
  }
  return row;
}

}  // namespace

ClockOffset clock_offset(const RankFacts& a, const RankFacts& b) {
  // In true time everybody has come before anybody leaves.
  ClockOffset offset{-std::numeric_limits<double>::infinity(),
                     std::numeric_limits<double>::infinity()};
  const size_t times = std::min({a.came.size(), a.left.size(), b.came.size(), b.left.size()});
  for (size_t i = 0; i < times; ++i) {
    offset.least = std::max(offset.least, b.came[i] - a.left[i]);
    offset.most = std::min(offset.most, b.left[i] - a.came[i]);
  }
  return offset;
}

FactTable compare_facts(const std::vector<RankFacts>& all) {
  std::vector<std::string> names;
  for (const RankFacts& one : all)
    for (const Fact& fact : one.facts)
      if (std::find(names.begin(), names.end(), fact.name) == names.end())
        names.push_back(fact.name);
  std::vector<Row> rows;
  for (const std::string& name : names)
    if (Row row = row_of(all, name); row.differs()) rows.push_back(std::move(row));
  if (Row row = row_of_clocks(all); row.differs()) rows.push_back(std::move(row));
  FactTable table;
  if (rows.empty()) return table;

  // Ranks that are alike in all that differs share a column.
  std::vector<std::vector<int>> keys;
  std::vector<std::vector<const RankFacts*>> columns;
  std::vector<size_t> first;
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<int> key;
    for (const Row& row : rows) key.push_back(row.kind[i]);
    const auto at = std::find(keys.begin(), keys.end(), key);
    if (at == keys.end()) {
      keys.push_back(key);
      columns.push_back({&all[i]});
      first.push_back(i);
    } else {
      columns[static_cast<size_t>(at - keys.begin())].push_back(&all[i]);
    }
  }
  const size_t shown = std::min(columns.size(), kMostColumns);
  const bool with_host = !one_host(all);
  std::vector<std::vector<std::string>> cells{{"what"}};
  for (size_t c = 0; c < shown; ++c) cells[0].push_back(column_text(columns[c], with_host));
  for (const Row& row : rows) {
    cells.push_back({printable(row.name)});
    for (size_t c = 0; c < shown; ++c)
      cells.back().push_back(row.of_kind[static_cast<size_t>(row.kind[first[c]])]);
    if (row.must_agree && table.refusal.empty()) table.refusal = refusal_of(row, all);
  }
  table.lines = lay_out(cells);
  if (columns.size() > shown)
    table.lines.push_back(fmt::format("and {} more that differ", columns.size() - shown));
  return table;
}

}  // namespace trireme
