# Completion of Garrick's commands for bash. `garrick complete` finds the words.
_garrick_complete() {
    local line=${COMP_LINE:0:COMP_POINT} word=${COMP_WORDS[COMP_CWORD]:-} kind text help
    # At `=` and `:` bash begins a new word: only what is behind them is replaced.
    [[ $word == [=:]* ]] && word=${word:1}
    local whole=${line##*[[:space:]]}
    local head=${whole%"$word"}
    COMPREPLY=()
    while IFS=$'\t' read -r text help; do
        if [[ -z ${kind:-} ]]; then
            kind=$text
        else
            COMPREPLY+=("${text#"$head"}")
        fi
    done < <(garrick complete "$line" 2>/dev/null)
    case ${kind:-} in
        files) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
        folders) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "$word") ;;
        programs) mapfile -t COMPREPLY < <(compgen -c -- "$word") ;;
    esac
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
    return 0
}
complete -F _garrick_complete @NAMES@
