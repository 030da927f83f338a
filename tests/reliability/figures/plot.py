"""A bar for each run, without matplotlib, whose own files a fault would strike most of the time."""
import argparse
import csv
import pathlib

parser = argparse.ArgumentParser()
parser.add_argument("--runs", type=pathlib.Path)
parser.add_argument("--out", type=pathlib.Path)
args = parser.parse_args()
with args.runs.open(newline="") as file:
    rows = list(csv.DictReader(file))
bars = "".join(f'<rect y="{10 * i}" width="{float(row["iteration_time_s"])}" height="8"/>'
               for i, row in enumerate(rows))
figure = args.out / "times.svg"
figure.write_text(f'<svg xmlns="http://www.w3.org/2000/svg">{bars}</svg>\n')
print(figure)
