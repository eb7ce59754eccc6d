// lethe completion.
#include "client/commands/completion.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/commands/commands.h"

namespace lethe::client {
namespace {

// A word that may stand next, and what it means.
struct Word {
  std::string name;
  std::string description;
};

struct Choice {
  std::string option;
  std::vector<std::string> values;
};

// What may follow one command, "session create".
struct Place {
  std::string command;
  std::vector<Word> words;          // commands in it, and values of a positional word
  std::vector<Word> options;        // all spellings
  std::vector<std::string> valued;  // the options that take a value
  std::vector<Choice> choices;      // the options whose values are known
};

// The words of a CLI::IsMember, which shows as "{keep,forget,fail}" in the name of the option's type.
std::vector<std::string> ValuesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{');
  const size_t end = type.find('}', begin);
  if (begin == std::string::npos || end == std::string::npos) return {};
  return absl::StrSplit(type.substr(begin + 1, end - begin - 1), ',');
}

void AddOption(const CLI::Option& option, Place* place) {
  const std::vector<std::string> values = ValuesOf(option);
  if (option.get_positional()) {
    for (const std::string& value : values) place->words.push_back({value, ""});
  }
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back(absl::StrCat("-", name));
  for (const std::string& name : option.get_lnames()) names.push_back(absl::StrCat("--", name));
  for (const std::string& name : names) {
    place->options.push_back({name, option.get_description()});
    if (option.get_items_expected_max() == 0) continue;
    place->valued.push_back(name);
    if (!values.empty()) place->choices.push_back({name, values});
  }
}

// The options of `app` and of the groups in it, which are nameless commands to CLI11.
void AddOptions(const CLI::App& app, Place* place) {
  for (const CLI::Option* option : app.get_options()) AddOption(*option, place);
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name().empty()) AddOptions(*command, place);
  }
}

void AddPlaces(const CLI::App& app, const CLI::App& root, const std::string& command,
               std::vector<Place>* places) {
  Place place;
  place.command = command;
  AddOptions(app, &place);
  // Options of the program stand anywhere.
  if (&app != &root && app.get_fallthrough()) {
    Place global;
    AddOptions(root, &global);
    for (const Word& option : global.options) {
      if (option.name != "-h" && option.name != "--help") place.options.push_back(option);
    }
    place.valued.insert(place.valued.end(), global.valued.begin(), global.valued.end());
    place.choices.insert(place.choices.end(), global.choices.begin(), global.choices.end());
  }
  std::vector<const CLI::App*> commands;
  for (const CLI::App* inner : app.get_subcommands({})) {
    if (inner->get_name().empty()) continue;
    commands.push_back(inner);
    place.words.push_back({inner->get_name(), inner->get_description()});
  }
  places->push_back(std::move(place));
  for (const CLI::App* inner : commands) {
    AddPlaces(*inner, root,
              command.empty() ? inner->get_name() : absl::StrCat(command, " ", inner->get_name()),
              places);
  }
}

// In single quotes.
std::string ShellText(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}, {"\n", " "}}), "'");
}

std::string Names(const std::vector<Word>& words) {
  return absl::StrJoin(words, " ",
                       [](std::string* out, const Word& word) { absl::StrAppend(out, word.name); });
}

// 'name:what it means' of zsh's _describe.
std::string Described(const std::vector<Word>& words) {
  return absl::StrJoin(words, " ", [](std::string* out, const Word& word) {
    absl::StrAppend(out, ShellText(absl::StrCat(absl::StrReplaceAll(word.name, {{":", "\\:"}}), ":",
                                                word.description)));
  });
}

// The cases of a shell's `case "$command $option" in`.
std::string ChoiceCases(const std::vector<Place>& places) {
  std::string cases;
  for (const Place& place : places) {
    for (const Choice& choice : place.choices) {
      absl::StrAppend(&cases, "    ", ShellText(absl::StrCat(place.command, " ", choice.option)),
                      ") choices=(", absl::StrJoin(choice.values, " "), ") ;;\n");
    }
  }
  return cases;
}

// Readline cuts --option=value into three words.
constexpr char kBash[] = R"(  esac
}
_lethe() {
  local command='' awaiting='' word i current=${COMP_WORDS[COMP_CWORD]}
  local words options valued choices=()
  _lethe_place ''
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == = ]]; then continue; fi
    if [[ $awaiting ]]; then awaiting=''; continue; fi
    if [[ " $valued " == *" $word "* ]]; then
      awaiting=$word
    elif [[ " $words " == *" $word "* ]]; then
      command=${command:+$command }$word
      _lethe_place "$command"
    fi
  done
  if [[ $current == = ]]; then current=''; fi
  if [[ $awaiting ]]; then
    _lethe_choices "$command $awaiting"
    COMPREPLY=($(compgen -W "${choices[*]}" -- "$current"))
  elif [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  fi
}
# Where nothing of this fits: names of files.
complete -o default -F _lethe lethe
)";

std::string BashPlace(const Place& place) {
  return absl::StrCat("words='", Names(place.words), "'\n      options='", Names(place.options),
                      "'\n      valued='", absl::StrJoin(place.valued, " "), "'");
}

constexpr char kZsh[] = R"(  esac
}
_lethe() {
  local command='' awaiting='' word
  local -a lethe_words lethe_options valued choices
  local -i i
  _lethe_place ''
  for ((i = 2; i < CURRENT; ++i)); do
    word=${words[i]}
    if [[ -n $awaiting ]]; then awaiting=''; continue; fi
    if (( ${valued[(Ie)$word]} )); then
      awaiting=$word
    elif [[ -n $word && -n ${(M)lethe_words:#${(b)word}:*} ]]; then
      command=${command:+$command }$word
      _lethe_place $command
    fi
  done
  if [[ -z $awaiting && ${words[CURRENT]} == --*=* ]] && compset -P '*='; then
    awaiting=${words[CURRENT]%%=*}
  fi
  if [[ -n $awaiting ]]; then
    _lethe_choices "$command $awaiting"
    if (( $#choices )); then compadd -- $choices; else _files; fi
  elif [[ ${words[CURRENT]} == -* ]]; then
    _describe -o option lethe_options
  elif (( $#lethe_words )); then
    _describe command lethe_words
  else
    _files
  fi
}
# From a directory of fpath zsh calls the file itself as the function.
if [[ ${funcstack[1]} == _lethe ]]; then _lethe "$@"; else compdef _lethe lethe; fi
)";

std::string ZshPlace(const Place& place) {
  return absl::StrCat("lethe_words=(", Described(place.words), ")\n      lethe_options=(",
                      Described(place.options), ")\n      valued=(",
                      absl::StrJoin(place.valued, " "), ")");
}

// What the shells have in common: a case for each place, a case for each option's choices, and the function behind them.
std::string Script(const std::vector<Place>& places, absl::string_view head,
                   std::string (*text_of)(const Place&), absl::string_view tail) {
  std::string script(head);
  absl::StrAppend(&script, "  case $1 in\n");
  for (const Place& place : places) {
    absl::StrAppend(&script, "    ", ShellText(place.command), ")\n      ", text_of(place),
                    " ;;\n");
  }
  absl::StrAppend(&script, "  esac\n}\n_lethe_choices() {\n  case $1 in\n", ChoiceCases(places),
                  tail);
  return script;
}

std::string BashScript(const std::vector<Place>& places) {
  return Script(places,
                "# bash completion for lethe, made by: lethe completion bash\n"
                "_lethe_place() {\n  words='' options='' valued=''\n",
                BashPlace, kBash);
}

std::string ZshScript(const std::vector<Place>& places) {
  return Script(places,
                "#compdef lethe\n# zsh completion for lethe, made by: lethe completion zsh\n"
                "_lethe_place() {\n  lethe_words=() lethe_options=() valued=()\n",
                ZshPlace, kZsh);
}

}  // namespace

std::string CompletionScript(const CLI::App& app, Shell shell) {
  std::vector<Place> places;
  AddPlaces(app, app, "", &places);
  return shell == Shell::kBash ? BashScript(places) : ZshScript(places);
}

void AddCompletionCommand(CLI::App& app, Context& context) {
  CLI::App* command =
      app.add_subcommand("completion", "Print a script that completes lethe's words");
  const auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash or zsh")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh"}));
  command->footer(
      "For this shell: eval \"$(lethe completion bash)\". For every new one:\n"
      "  lethe completion bash > ~/.local/share/bash-completion/completions/lethe\n"
      "  lethe completion zsh > ~/.zfunc/_lethe     # a directory of fpath, before compinit\n"
      "Example: lethe completion bash");
  command->callback([&app, &context, shell] {
    context.out() << CompletionScript(app, *shell == "zsh" ? Shell::kZsh : Shell::kBash)
                  << std::flush;
  });
}

}  // namespace lethe::client
