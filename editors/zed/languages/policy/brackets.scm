("(" @open ")" @close)
("[" @open "]" @close)
