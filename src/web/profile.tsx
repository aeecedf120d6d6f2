/** The own profile. */
import { useState } from "preact/hooks";
import type { Profile } from "../client/package.ts";
import { Avatar, Button, Check, Form, Input, useStored } from "./parts.tsx";
import { attempt, me } from "./session.ts";
import { t } from "./words/language.ts";

const [edge, bytesMax] = [160, 32_768];

/** Square, small, and without what a camera adds to the picture. */
async function smallPicture(file: Blob): Promise<Blob> {
  const image = await createImageBitmap(file).catch(() => {
    throw new Error(t.noPicture);
  });
  const side = Math.min(image.width, image.height);
  const canvas = Object.assign(document.createElement("canvas"), { width: edge, height: edge });
  const [x, y] = [(image.width - side) / 2, (image.height - side) / 2];
  canvas.getContext("2d")?.drawImage(image, x, y, side, side, 0, 0, edge, edge);
  for (const quality of [0.85, 0.5]) {
    const small = await new Promise<Blob | null>((resolve) =>
      canvas.toBlob(resolve, "image/jpeg", quality),
    );
    if (small !== null && small.size <= bytesMax) return small;
  }
  throw new Error(t.pictureTooLarge);
}

export function ProfileSettings() {
  const profile = useStored(() => me.store.profile(), []);
  return profile === null ? null : <ProfileForm key={profile.name} {...{ profile }} />;
}

function ProfileForm({ profile }: { readonly profile: Profile }) {
  const [name, setName] = useState(profile.name);
  const saveProfile = (change: Partial<Profile>) => me.store.saveProfile(change);
  const choosePicture = async (file: File | undefined) => {
    if (file !== undefined) await saveProfile({ picture: await smallPicture(file) });
  };
  return (
    <>
      <h3>{t.profile}</h3>
      <p>{t.profileText}</p>
      <div class="person">
        <Avatar id={me.did} name={profile.name} picture={profile.picture} size="large" />
        <label class="plain choose">
          {profile.picture === null ? t.choosePicture : t.chooseOther}
          <input
            class="hidden"
            type="file"
            accept="image/png,image/jpeg,image/webp,image/gif"
            onChange={({ currentTarget }) => attempt(() => choosePicture(currentTarget.files?.[0]))}
          />
        </label>
        {profile.picture !== null && (
          <Button onClick={() => saveProfile({ picture: null })}>{t.removeIt}</Button>
        )}
      </div>
      <Form isLine submit={t.saveName} onSubmit={() => saveProfile({ name: name.trim() })}>
        <Input
          label={t.yourName}
          value={name}
          onText={setName}
          maxLength={60}
          autocomplete="nickname"
        />
      </Form>
      <Check isOn={profile.isOpen} onChange={() => saveProfile({ isOpen: !profile.isOpen })}>
        {t.isOpen}
      </Check>
    </>
  );
}
