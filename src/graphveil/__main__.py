from graphveil.cli import main

main()
