"""The course: its texts by language (`en/`), its demo programs (`demos/`), and the modules that read them.

A chapter is one Markdown file with a few directives (`chapter`), its questions one TOML file (`questions`), its skip
test another (`skip`). `cutaway.lab.course` puts them together and is what the rest of the lab uses.
"""
