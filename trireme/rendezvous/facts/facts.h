// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/encoding.h"
#include "trireme/base/export.h"

// What is true of the places where the ranks of a job run, compared before its first step. Pure:
// facts come in, a table comes out. How they are read: rendezvous/facts/read_facts.h.
namespace trireme {

struct Fact {
  std::string name;   // "LibTorch"
  std::string value;  // for people
  /// What must be the same everywhere. Another difference is merely said.
  bool must_agree = false;
  /// More than 1: numbers are compared, and are alike if none is more than so many times another.
  double within = 0;
  double number = 0;
  TRIREME_FIELDS(name, value, must_agree, within, number)
};

/// Of ranks that follow each other: one, or those of one launcher.
struct RankFacts {
  std::string host;
  int first_rank = 0, ranks = 1;
  std::vector<Fact> facts;
  /// The wall clock of its host in seconds, before and after it met all the others, once for each
  /// time that they met: nobody has left before the last has come.
  std::vector<double> came, left;
  TRIREME_FIELDS(host, first_rank, ranks, facts, came, left)
};

/// Clocks are said to differ when they do so by more than this, whatever the meeting took.
inline constexpr double kClocksDifferBy = 1.0;  // seconds

struct FactTable {
  /// "what        │ host0 (ranks 0-7) │ host1 (ranks 8-15)" and a line for each fact that is not
  /// alike; none: all is.
  std::vector<std::string> lines;
  /// A sentence with the first ranks that cannot be in one job; "": there are none.
  std::string refusal;
};
/// Ordered by rank, at least one.
TRIREME_API FactTable compare_facts(const std::vector<RankFacts>& all);

/// By how much the clock of `b` is ahead of that of `a`, at least and at most.
struct ClockOffset {
  double least = 0, most = 0;
};
TRIREME_API ClockOffset clock_offset(const RankFacts& a, const RankFacts& b);

}  // namespace trireme
