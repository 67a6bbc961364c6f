from cutaway.cli.app import main

main()
