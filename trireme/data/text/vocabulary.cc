// SPDX-License-Identifier: Apache-2.0
#include "trireme/data/text/vocabulary.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>

#include "trireme/base/check.h"
#include "trireme/base/file.h"
#include "trireme/data/text/utf8.h"

namespace trireme {
namespace {

constexpr size_t kLongestPiece = 1000;             // bytes
constexpr size_t kLargestVocabulary = 256u << 20;  // bytes
constexpr std::string_view kContinues = "##";

// Below 2^24, so that an edge takes 8 bytes: words are looked up as fast as edges come from memory.
constexpr size_t kMostNodes = (1u << 24) - 1;

uint32_t edge_key(uint32_t node, unsigned char byte) { return (node << 8 | byte) + 1; }

/// Where an edge is looked for first: one multiplication, as it is done for each byte.
uint64_t slot_of(uint32_t key, uint64_t mask) { return (key * 0x9E3779B97F4A7C15u >> 32) & mask; }

}  // namespace

uint32_t Vocabulary::child(uint32_t node, unsigned char byte) const {
  const uint32_t key = edge_key(node, byte);
  const uint64_t mask = edges_.size() - 1;
  for (uint64_t at = slot_of(key, mask);; at = (at + 1) & mask) {
    if (edges_[at].from == key) return edges_[at].to;
    if (edges_[at].from == 0) return 0;  // the root is nobody's child
  }
}

void Vocabulary::grow() {
  std::vector<Edge> old(edges_.empty() ? 1024 : 2 * edges_.size());
  old.swap(edges_);
  const uint64_t mask = edges_.size() - 1;
  for (const Edge& edge : old) {
    if (edge.from == 0) continue;
    uint64_t at = slot_of(edge.from, mask);
    while (edges_[at].from != 0) at = (at + 1) & mask;
    edges_[at] = edge;
  }
}

void Vocabulary::add(std::string_view piece, const std::string& line) {
  uint32_t node = 0;
  for (const char c : piece) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t next = child(node, byte);
    if (next == 0) {
      check<Corrupt>(id_at_.size() < kMostNodes, "{}: more text than a vocabulary has", line);
      if (id_at_.size() * 2 > edges_.size()) grow();
      next = static_cast<uint32_t>(id_at_.size());
      id_at_.push_back(-1);
      const uint32_t key = edge_key(node, byte);
      const uint64_t mask = edges_.size() - 1;
      uint64_t at = slot_of(key, mask);
      while (edges_[at].from != 0) at = (at + 1) & mask;
      edges_[at] = {key, next};
    }
    node = next;
  }
  check<Corrupt>(id_at_[node] < 0, "{}: the piece '{}' is in line {} already: each has one number",
                 line, piece, id_at_[node] + 1);
  id_at_[node] = static_cast<int32_t>(pieces_.size());
  pieces_.emplace_back(piece);
}

Vocabulary Vocabulary::from_text(std::string_view text, const std::string& where,
                                 const SpecialPieces& special) {
  Vocabulary made;
  made.where_ = where;
  made.id_at_ = {-1};
  made.grow();
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // Windows' mark of UTF-8
  while (!text.empty()) {
    const std::string line = fmt::format("{}:{}", where, made.pieces_.size() + 1);
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view piece = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (piece.ends_with('\r')) piece.remove_suffix(1);
    check<Corrupt>(!piece.empty(), "{}: an empty line, where a vocabulary has a piece", line);
    check<Corrupt>(piece.size() <= kLongestPiece,
                   "{}: a piece of {} bytes; more than {} is no vocabulary of WordPiece", line,
                   piece.size(), kLongestPiece);
    const auto bad = first_not_utf8(piece);
    check<Corrupt>(!bad, "{}: byte {} of the line is not UTF-8: save the file as UTF-8", line,
                   bad.value_or(0) + 1);
    made.add(piece, line);
  }
  const auto id = [&](const std::string& piece) {
    const auto found = made.id_of(piece);
    check<UsageError>(
        found.has_value(),
        "{}: the vocabulary has no piece '{}'; name another in SpecialPieces, or take "
        "the vocab.txt that belongs to the weights",
        where, piece);
    return *found;
  };
  made.padding_ = id(special.padding);
  made.unknown_ = id(special.unknown);
  made.first_ = id(special.first);
  made.separator_ = id(special.separator);
  for (const char c : kContinues)
    made.continuing_ = made.child(made.continuing_, static_cast<unsigned char>(c));
  return made;
}

Vocabulary Vocabulary::from_file(const std::string& path, const SpecialPieces& special) {
  check<UsageError>(std::filesystem::exists(path), "the vocabulary {} does not exist", path);
  return from_text(read_file(path, kLargestVocabulary), path, special);
}

std::optional<int32_t> Vocabulary::id_of(std::string_view piece) const {
  uint32_t node = 0;
  for (const char c : piece)
    if ((node = child(node, static_cast<unsigned char>(c))) == 0) return std::nullopt;
  return id_at_[node] < 0 ? std::nullopt : std::optional(id_at_[node]);
}

const std::string& Vocabulary::piece(int32_t id) const {
  check<UsageError>(id >= 0 && id < size(), "{}: there is no piece {}: there are {}", where_, id,
                    size());
  return pieces_[static_cast<size_t>(id)];
}

void Vocabulary::check_fits(int64_t rows, const std::string& whose) const {
  check<UsageError>(size() <= rows,
                    "{}: the vocabulary has {} pieces and {} has {} rows: take the vocab.txt that "
                    "belongs to the weights",
                    where_, size(), whose, rows);
}

Vocabulary::Match Vocabulary::longest(std::string_view text, bool continues) const {
  Match found;
  uint32_t node = 0;
  if (continues && (node = continuing_) == 0) return found;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((node = child(node, static_cast<unsigned char>(text[i]))) == 0) break;
    if (id_at_[node] >= 0) found = {id_at_[node], i + 1};
  }
  return found;
}

}  // namespace trireme
