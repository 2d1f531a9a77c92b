/** The style of the page, from 320 pixels up, light and dark. */
export const style = `:root {
  color-scheme: light dark;
  --line: light-dark(#d5d9e0, #3a404c);
  --soft: light-dark(#f4f6f9, #1d2129);
  --muted: light-dark(#566070, #a3adbd);
  --link: light-dark(#0b57d0, #8ab4f8);
  --good: light-dark(#17713a, #6fd08c);
  --bad: light-dark(#a3341c, #ff9d85);
  font: 16px/1.5 system-ui, sans-serif;
}
html { scroll-padding-top: 6.5rem; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 56rem; padding: 1.5rem 1rem 4rem; background: light-dark(#fff, #14171c); color: light-dark(#1a1d23, #e6e9ef); overflow-wrap: anywhere; }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.35rem; line-height: 1.25; margin: 0 0 .25rem; }
h3 { font-size: 1rem; margin: 1.5rem 0 .5rem; }
p { margin: .5rem 0; max-width: 44rem; }
a { color: var(--link); }
code, pre, input, textarea { font: .875em/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
pre { background: var(--soft); border-radius: .375rem; margin: .5rem 0; overflow-x: auto; padding: .75rem; overflow-wrap: normal; }
nav ul { list-style: none; margin: 1rem 0; padding: 0; }
nav li { align-items: baseline; display: grid; grid-template-columns: 4.5rem 18rem 1fr; padding: .25rem 0; }
nav b { justify-self: start; }
section { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: 2rem; }
.route { font-size: 1.05rem; }
b.get, b.post, b.patch, b.delete { border-radius: .25rem; color: #fff; font-size: .75rem; letter-spacing: .03em; padding: .15rem .4rem; vertical-align: .1em; }
b.get { background: #1f6f4a; }
b.post { background: #2457b3; }
b.patch { background: #8a5a00; }
b.delete { background: #a3262a; }
table { border-collapse: collapse; width: 100%; }
th, td { border-top: 1px solid var(--line); padding: .5rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; padding-right: 1rem; width: 15rem; }
th span { color: var(--muted); display: block; font-size: .8125rem; font-weight: 400; }
td p { margin: .125rem 0; }
.type, .limits { color: var(--muted); font-size: .875rem; }
.values { line-height: 1.9; }
.values code { background: var(--soft); border-radius: .25rem; padding: .1rem .3rem; }
details.response { border-top: 1px solid var(--line); padding: .5rem 0; }
summary { cursor: pointer; }
.s2 { color: var(--good); }
.s3, .s4, .s5 { color: var(--bad); }
details ul { color: var(--muted); font-size: .875rem; padding-left: 1.25rem; }
form { background: var(--soft); border-radius: .5rem; margin-top: 1.5rem; padding: 1rem; }
form h3 { margin-top: 0; }
form#key { border: 1px solid var(--line); box-shadow: 0 0 0 .25rem light-dark(#fff, #14171c); padding: .5rem 1rem; position: sticky; top: 0; z-index: 1; }
form#key label { margin: 0; }
form pre { background: light-dark(#fff, #14171c); border: 1px solid var(--line); max-height: 24rem; overflow-y: auto; }
form[data-method=DELETE] { border-left: .25rem solid #a3262a; }
form[data-method=DELETE] button { background: #a3262a; }
label { display: block; margin-bottom: .75rem; }
input, textarea { background: light-dark(#fff, #14171c); border: 1px solid light-dark(#868f9d, #6d7685); border-radius: .375rem; color: inherit; display: block; margin-top: .25rem; padding: .5rem; width: 100%; }
button { background: #2457b3; border: 0; border-radius: .375rem; color: #fff; cursor: pointer; font: inherit; padding: .5rem 1.25rem; }
button:disabled { opacity: .6; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
output { display: block; }
@media (max-width: 40rem) {
  nav li { grid-template-columns: 4.5rem 1fr; }
  nav code { grid-column: 2; }
  pre { overflow-wrap: anywhere; white-space: pre-wrap; }
  table, tbody, tr, th, td { display: block; width: 100%; }
  th { border-top: 1px solid var(--line); padding: .75rem 0 0; }
  th span { display: inline; margin-left: .5rem; }
  td { border: 0; padding: .125rem 0 .75rem; }
}
`
