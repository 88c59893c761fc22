# Completion of Garrick's commands for fish. `garrick complete` finds the words.
function __garrick_complete
    set -l found (garrick complete (commandline -cp | string collect) 2>/dev/null)
    set -l word (commandline -ct)
    set -l head (string match -r -- '^--[^=]*=' $word)
    switch "$found[1]"
        case files
            set -l names (__fish_complete_path (string replace -- "$head" '' $word))
            printf '%s\n' "$head"$names
        case folders
            set -l names (__fish_complete_directories (string replace -- "$head" '' $word))
            printf '%s\n' "$head"$names
        case programs
            __fish_complete_command
        case '*'
            printf '%s\n' $found[2..-1]
    end
end
for name in @NAMES@
    complete -c $name -f -a '(__garrick_complete)'
end
