#compdef @NAMES@
# Completion of Garrick's commands for zsh. `garrick complete` finds the words.
_garrick_complete() {
    local line kind
    local -a found texts shown heads heads_shown
    found=("${(@f)$(garrick complete "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)}")
    kind=$found[1]
    case $kind in
        files) [[ $PREFIX == --*=* ]] && compset -P '*='; _files; return ;;
        folders) [[ $PREFIX == --*=* ]] && compset -P '*='; _files -/; return ;;
        programs) _command_names -e; return ;;
    esac
    for line in "${(@)found[2,-1]}"; do
        if [[ ${line%%$'\t'*} == *= ]]; then
            heads+=("${line%%$'\t'*}")
            heads_shown+=("${line/$'\t'/  -- }")
        elif [[ -n $line ]]; then
            texts+=("${line%%$'\t'*}")
            shown+=("${line/$'\t'/  -- }")
        fi
    done
    (( $#heads )) && compadd -l -S '' -d heads_shown -a heads
    (( $#texts )) && compadd -l -d shown -a texts
}
compdef _garrick_complete @NAMES@
# Loaded by its name (_sbatch) it completes at once; read by `source` it is only told to the shell.
[[ $funcstack[1] == _* ]] && _garrick_complete "$@"
return 0
