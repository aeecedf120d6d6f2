/** Whether a person is who this user means: both look at the same text and picture, and say so. */
import { useReducer } from "preact/hooks";
import { Button, Phrase, Problem, useLoaded } from "./parts.tsx";
import { me, toast } from "./session.ts";
import { t } from "./words/language.ts";

/** Of a text in groups of Crockford's base32. */
const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const columns = 8;

export function Comparing({ did }: { readonly did: string }) {
  const [times, again] = useReducer((count: number) => count + 1, 0);
  const { value, problem } = useLoaded(() => me.fingerprint(did), [did, times]);
  if (problem !== null) return <Problem text={problem} />;
  if (value === null) return <p role="status">{t.askingServer}</p>;
  const { is, was, isCompared, distrusted } = value;
  const compared = async () => {
    await me.setCompared(did, is);
    again(undefined);
    toast(t.comparedNoted);
  };
  return (
    <>
      <p>{t.comparingText}</p>
      {distrusted !== null && (
        <p class="doubt" role="alert">
          {t.keysDiffer}
        </p>
      )}
      <div class="compared" dir="ltr">
        <p class="fingerprint">
          {is.split(" ").map((group, i) => (
            <span key={i}>{group} </span>
          ))}
        </p>
        <FingerprintPicture text={is} />
      </div>
      {was !== null && (
        <p class="doubt">
          <Phrase text={t.numbersBefore}>
            <span class="fingerprint">{was}</span>
          </Phrase>
        </p>
      )}
      {isCompared ? (
        <p class="good" role="status">
          {t.isCompared}
        </p>
      ) : (
        <Button main onClick={compared}>
          {t.haveCompared}
        </Button>
      )}
    </>
  );
}

/**
 * A cell for each character, in a color of its own: what differs is seen at once.
 * The text is what counts.
 */
function FingerprintPicture({ text }: { readonly text: string }) {
  const cells = [...text.replaceAll(" ", "")].map((digit) => digits.indexOf(digit));
  const rows = Math.ceil(cells.length / columns);
  return (
    <svg
      class="cells"
      viewBox={`0 0 ${columns} ${rows}`}
      role="img"
      aria-label={t.samePicture}
      shape-rendering="crispEdges"
    >
      {cells.map((value, i) => (
        <rect
          key={i}
          x={i % columns}
          y={Math.floor(i / columns)}
          width={1}
          height={1}
          fill={`hsl(${(value % 8) * 45} 65% ${30 + (value >> 3) * 17}%)`}
        />
      ))}
    </svg>
  );
}
