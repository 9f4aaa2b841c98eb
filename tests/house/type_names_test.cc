// SPDX-License-Identifier: Apache-2.0
// Two types of one name in one namespace link without a word, and each file then uses the other's
// size and functions. No two files of the library or of the command define one name.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/house/source_lines.h"
#include "tests/support/paths.h"
#include "trireme/base/file.h"

namespace trireme::type_names_test {
namespace {

/// Without comments, preprocessor lines, and what stands between quotes.
std::string code_of(const std::string& text) {
  static const std::regex noise(
      R"(//[^\n]*|/\*[^]*?\*/|R"([A-Za-z]*)\([^]*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'|(?:^|\n)[ \t]*#(?:[^\n]*\\\n)*[^\n]*)");
  return std::regex_replace(text, noise, " ");
}

/// The types that are defined at the level of a namespace others can name, as "trireme::net::Peer".
std::vector<std::string> types_of(const std::string& text) {
  static const std::regex token(R"([A-Za-z_]\w*(?:::[A-Za-z_]\w*)*|[{};()<>=:])");
  const std::string code = code_of(text);
  struct Scope {
    bool is_namespace;
    std::string name;  // "": it has none
  };
  std::vector<Scope> scopes;
  std::vector<std::string> found, words;  // since the last brace or semicolon
  for (std::sregex_iterator it(code.begin(), code.end(), token), end; it != end; ++it) {
    const std::string word = it->str();
    if (word == ";") words.clear();
    if (word == "}") {
      if (!scopes.empty()) scopes.pop_back();
      words.clear();
    }
    if (word != "{") {
      if (word != ";" && word != "}") words.push_back(word);
      continue;
    }
    Scope scope{false, ""};
    const auto is = [&](size_t i, const char* wanted) {
      return i < words.size() && words[i] == wanted;
    };
    const size_t inline_word = is(0, "inline") ? 1 : 0;
    if (is(inline_word, "namespace")) {
      scope = {true, inline_word + 1 < words.size() ? words[inline_word + 1] : ""};
    } else {
      size_t at = 0;
      if (is(0, "template")) {
        for (size_t depth = 0; ++at < words.size();) {
          if (words[at] == "<") ++depth;
          if (words[at] == ">" && --depth == 0) break;
        }
        ++at;
      }
      // What is a type's head has no call in it: "class TRIREME_API Name final : public Other".
      const bool head =
          std::none_of(words.begin() + static_cast<long>(std::min(at, words.size())), words.end(),
                       [](const std::string& w) { return w == "(" || w == "="; });
      if (head && (is(at, "struct") || is(at, "class") || is(at, "union") || is(at, "enum"))) {
        ++at;
        while (is(at, "class") || is(at, "struct") || is(at, "TRIREME_API")) ++at;
        const bool specialised = is(at + 1, "<");
        const bool nameable = std::all_of(scopes.begin(), scopes.end(), [](const Scope& s) {
          return s.is_namespace && !s.name.empty();
        });
        if (at < words.size() && nameable && !specialised && words[at] != ":") {
          std::string whole;
          for (const Scope& outer : scopes) whole += outer.name + "::";
          found.push_back(whole + words[at]);
        }
      }
    }
    scopes.push_back(scope);
    words.clear();
  }
  return found;
}

}  // namespace

TEST(house_type_names, the_search_finds_what_others_can_name_and_nothing_else) {
  const std::string text = R"text(
#define OPEN {
namespace a::b {
struct One { struct Inner {}; enum Kind { first }; };
class TRIREME_API Two final : public One { void f() { struct Local {}; } };
template <typename T, class U = Map<T, U>> struct Three {};
template <> struct Three<int> {};
enum class Four : int { x, y };
struct Later;
struct One made() { return {}; }
const char* text = "struct No {";  // struct Neither {
namespace { struct Hidden {}; }
union Five { int i; };
}
)text";
  EXPECT_EQ(types_of(text), (std::vector<std::string>{"a::b::One", "a::b::Two", "a::b::Three",
                                                      "a::b::Four", "a::b::Five"}));
}

TEST(house_type_names, each_is_one_files) {
  std::map<std::string, std::set<std::string>> files;
  for (const char* folder : {"trireme", "cli"})
    for (const std::string& path : testing::sources_in(folder))
      if (path.find("/no_") == std::string::npos)  // stands in for a file, and is never beside it
        for (const std::string& name : types_of(read_file(testing::source_path() + "/" + path)))
          files[name].insert(path);
  EXPECT_GE(files.size(), 700u);
  for (const auto& [name, paths] : files)
    if (paths.size() > 1) {
      std::string where;
      for (const std::string& path : paths) where += "\n  " + path;
      ADD_FAILURE() << name << " is defined in several files:" << where
                    << "\nPut what one file has for itself into an unnamed namespace, or give it a "
                       "namespace or a name of its own.";
    }
}

}  // namespace trireme::type_names_test
