// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/export.h"
#include "trireme/data/text/bad_samples.h"
#include "trireme/data/text/question.h"

namespace trireme {

/// The questions of a SQuAD file, version 1.1 or 2.0 (questions without an answer are unknown, all
/// others short), in its order. Answers count characters there and bytes here; the first is the one
/// to train on, all are kept for scores.
///
/// Throws UsageError for a missing file, and Corrupt, with the file, for what is not SQuAD's JSON
/// or not UTF-8. Bad samples, with the question's id: an empty question or paragraph, an answer
/// that is not the paragraph's text at its place, none where one belongs.
TRIREME_API std::vector<Question> read_squad(const std::string& path, BadSamples* bad);

/// A text as the official script compares it: small letters, no ASCII punctuation, none of the
/// words a, an and the, one space between words. For UTF-8; Corrupt for other bytes.
TRIREME_API std::string normalized_answer(std::string_view text);

struct AnswerScore {
  double exact = 0, f1 = 0;
};
/// Of a prediction ("" for "no answer") against the answers that are right ({} for none), the best
/// over them, as evaluate-v2.0.py counts.
TRIREME_API AnswerScore squad_score(std::string_view prediction,
                                    const std::vector<std::string>& answers);
/// As evaluate-v1.1.py does: two empty texts have nothing in common.
TRIREME_API AnswerScore squad_score_v1(std::string_view prediction,
                                       const std::vector<std::string>& answers);

/// Sums over questions, which ranks may add up. Percentages are of all questions added.
struct TRIREME_API SquadScores {
  int64_t total = 0, with_answer = 0, without_answer = 0;
  double exact = 0, f1 = 0;
  double exact_with_answer = 0, f1_with_answer = 0, exact_without_answer = 0, f1_without_answer = 0;
  void add(const AnswerScore& score, bool has_answer);
};

}  // namespace trireme
